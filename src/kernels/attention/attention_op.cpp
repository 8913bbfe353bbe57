#include "kernels/attention/attention_op.hpp"

#include "kernels/attention/attention.hpp"
#include "kernels/exact.hpp"
#include "kernels/ops.hpp"

namespace rocm_sd {
namespace {

using Heads = AttentionSpec::HeadStrides;

Heads strides_of(const Heads& s, const AttentionSpec& p, int64_t rows) {
  if (s.batch == 0 && s.head == 0 && s.row == 0)
    return {rows * p.heads * p.head_dim, p.head_dim, p.heads * p.head_dim};
  return s;
}

// Each head beside the others in a row: [batch,rows,heads*head_dim], as the op takes it.
bool heads_in_rows(const Heads& s, const AttentionSpec& p) { return p.heads == 1 || s.head == p.head_dim; }
// Each head a matrix of its own, at even distances over all images: an image each, of one head.
bool heads_as_images(const Heads& s, const AttentionSpec& p) {
  return p.batch <= 1 || p.heads == 1 || s.batch == p.heads * s.head;
}

// Where a row of y ends the next begins, so that the op can write it as one block.
bool is_dense(const Heads& y, const AttentionSpec& p, bool in_rows) {
  const int64_t row = in_rows ? p.heads * p.head_dim : p.head_dim;
  const bool heads_fit = in_rows ? heads_in_rows(y, p) : p.heads == 1 || y.head == p.queries * p.head_dim;
  return (p.queries == 1 || y.row == row) && heads_fit &&
         (p.batch == 1 || y.batch == p.queries * p.heads * p.head_dim);
}

struct HeadLayout {
  bool in_rows = true;
  int64_t images, heads;  // as the op sees them
  Heads q, k, v;
};

HeadLayout head_layout(const AttentionSpec& p) {
  HeadLayout out;
  out.q = strides_of(p.q, p, p.queries);
  out.k = strides_of(p.k, p, p.keys);
  out.v = strides_of(p.v, p, p.keys);
  const Heads y = strides_of(p.y, p, p.queries);
  const auto all = [&](auto&& fits) { return fits(out.q, p) && fits(out.k, p) && fits(out.v, p); };
  out.in_rows = is_dense(y, p, true) && all(heads_in_rows);
  const bool masks_fit =
      !p.masked || p.batch <= 1 || p.heads == 1 || p.mask_strides[0] == p.heads * p.mask_strides[1];
  if (!out.in_rows) {
    require<UsageError>(
        is_dense(y, p, false) && all(heads_as_images),
        "attention: the heads of q, k, v and y must all lie in rows of heads * head_dim elements, "
        "or all as matrices [rows,head_dim] at even distances, with a dense y");
    require<UsageError>(masks_fit,
                        "attention: heads as matrices take a mask that is one for all, or one for each "
                        "head at even distances");
  }
  out.images = out.in_rows ? p.batch : p.batch * p.heads;
  out.heads = out.in_rows ? p.heads : 1;
  return out;
}

Operand rows_operand(Role role, const Heads& s, const HeadLayout& layout, int64_t rows,
                     const AttentionSpec& p) {
  const int64_t image = layout.in_rows ? s.batch : s.head;
  return {role, {layout.images, rows, layout.heads * p.head_dim}, {image, s.row, 1}, p.dtype};
}

// The mask as [images,heads,queries,keys] of the op, 1 where it is broadcast.
Operand mask_operand(const AttentionSpec& p, const HeadLayout& layout) {
  int64_t image = p.mask_strides[0], head = p.mask_strides[1];
  if (!layout.in_rows) {
    image = p.heads > 1 ? head : image;
    head = 0;
  }
  const Shape shape = {image ? layout.images : 1, head ? layout.heads : 1, p.mask_strides[2] ? p.queries : 1,
                       p.keys};
  return {Role::kMask, shape, {image, head, p.mask_strides[2], 1}, DType::kF32};
}

}  // namespace

AnyOp attention_op() { return Op<AttentionSpec>::any(); }

void AttentionSpec::check() const {
  require_extent(kOp, "batch", batch, 0);
  require_extent(kOp, "heads", heads, 1);
  require_extent(kOp, "queries", queries, 0);
  require_extent(kOp, "keys", keys, 0);
  require_extent(kOp, "head_dim", head_dim, 1);
}

std::vector<Operand> AttentionSpec::operands() const {
  const HeadLayout layout = head_layout(*this);
  std::vector<Operand> out = {rows_operand(Role::kQ, layout.q, layout, queries, *this),
                              rows_operand(Role::kK, layout.k, layout, keys, *this),
                              rows_operand(Role::kV, layout.v, layout, keys, *this),
                              dense(Role::kY, {batch, queries, heads, head_dim}, dtype, true)};
  if (masked) out.push_back(mask_operand(*this, layout));
  return out;
}

std::vector<Result> AttentionSpec::run(Exec& ex, const Operands& in, const Weight&) const {
  const auto mask = optional_operand(in, Role::kMask);
  const AttentionArgs args{.heads = static_cast<int>(head_layout(*this).heads),
                           .scale = scale,
                           .causal = causal,
                           .mask = mask ? &*mask : nullptr};
  return {{Role::kY, 0, attention(ex, in.at(Role::kQ), in.at(Role::kK), in.at(Role::kV), args)}};
}

// Dense operands [batch,rows,heads,head_dim].
ExactValue AttentionSpec::exact(const OperandValues& in, int64_t i) const {
  const int64_t channel = i % head_dim, head = i / head_dim % heads;
  const int64_t query = i / head_dim / heads % queries, image = i / head_dim / heads / queries;
  const auto at = [&](int64_t rows, int64_t row, int64_t c) {
    return ((image * rows + row) * heads + head) * head_dim + c;
  };
  const double factor = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(head_dim));
  const int64_t seen = causal ? std::min(query + 1, keys) : keys;
  std::vector<double> scores(static_cast<size_t>(seen));
  double most = -1e300;
  for (int64_t key = 0; key < seen; ++key) {
    double score = 0;
    for (int64_t c = 0; c < head_dim; ++c)
      score += in.value(Role::kQ, at(queries, query, c)) * in.value(Role::kK, at(keys, key, c));
    score *= factor;
    if (masked)
      score += in.value(Role::kMask,
                        image * mask_strides[0] + head * mask_strides[1] + query * mask_strides[2] + key);
    most = std::max(most, scores[static_cast<size_t>(key)] = score);
  }
  exact::Sum sum;
  double weights = 0;
  for (int64_t key = 0; key < seen; ++key) {
    const double weight = std::exp(scores[static_cast<size_t>(key)] - most);
    weights += weight;
    sum.add(weight * in.value(Role::kV, at(keys, key, channel)));
  }
  if (seen == 0) return {0, 1e-7};
  const double value = sum.value / weights, magnitude = sum.magnitude / weights, unit = exact::unit_of(dtype);
  // Probabilities may have been rounded to the type.
  return {value,
          2 * unit * std::fabs(value) + (2 * unit + exact::kSumUnits * exact::kFloatUnit) * magnitude + 1e-7};
}

}  // namespace rocm_sd
