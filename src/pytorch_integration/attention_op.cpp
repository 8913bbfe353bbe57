// rocm_sd::attention and rocm_sd::vae_attention.
#include "kernels/attention/attention.hpp"
#include "pytorch_integration/op_scope.hpp"
#include "pytorch_integration/operators.hpp"

namespace rocm_sd::torch_ops {
namespace {

struct Extents {
  int64_t batch, heads, queries, keys, dim;
};

Extents check_operands(const AtTensor& q, const AtTensor& k, const AtTensor& v) {
  constexpr const char* kOp = "rocm_sd::attention";
  check(q.dim() == 4 && k.dim() == 4 && v.dim() == 4, kOp, ": expected q, k and v [B,H,N,D], got ", shown(q),
        ", ", shown(k), " and ", shown(v));
  check_alike(kOp, q, k, "k");
  check_alike(kOp, q, v, "v");
  check(k.size(0) == q.size(0) && k.size(1) == q.size(1) && k.size(3) == q.size(3) &&
            v.size(0) == q.size(0) && v.size(1) == q.size(1) && v.size(2) == k.size(2),
        kOp, ": k ", shown(k), " and v ", shown(v), " do not fit q ", shown(q));
  return {q.size(0), q.size(1), q.size(2), k.size(2), q.size(3)};
}

// The strides of [B,H,N,D] laid out as [B,N,H,D].
Shape packed_strides(const Shape& sizes) {
  const int64_t h = std::max<int64_t>(sizes[1], 1), n = std::max<int64_t>(sizes[2], 1),
                d = std::max<int64_t>(sizes[3], 1);
  return {n * h * d, d, h * d, 1};
}

// The heads of a token lie beside one another, as projections leave them.
bool is_packed(const Shape& sizes, const Shape& strides) {
  return (sizes[3] <= 1 || strides[3] == 1) && (sizes[1] <= 1 || strides[1] == sizes[3]);
}
// Images and heads are evenly spaced: they can be one dimension.
bool is_foldable(const Shape& sizes, const Shape& strides) {
  return (sizes[3] <= 1 || strides[3] == 1) && (sizes[0] <= 1 || strides[0] == sizes[1] * strides[1]);
}

Tensor packed_rows(const AtTensor& x) {
  const Shape sizes = sizes_of(x), strides = strides_of(x);
  const Shape rows = {sizes[0], sizes[2], sizes[1] * sizes[3]};  // [B,N,H*D]
  if (is_packed(sizes, strides))
    if (auto view = rows_view(x, rows, strides[0], strides[2])) return *view;
  return view_as(with_strides(x, packed_strides(sizes)), rows);
}
std::optional<Tensor> folded_rows(const AtTensor& x) {
  const Shape sizes = sizes_of(x), strides = strides_of(x);
  if (!is_foldable(sizes, strides)) return std::nullopt;
  return rows_view(x, {sizes[0] * sizes[1], sizes[2], sizes[3]}, strides[1], strides[2]);  // [B*H,N,D]
}

// The mask as f32 [1|B,1|H,1|Nq,Nk]; made so by PyTorch where it is bool, of another type or lacks the keys.
AtTensor float_mask(const AtTensor& mask, const Extents& e) {
  const Shape sizes = sizes_of(mask), strides = strides_of(mask);
  const int last = sizes.rank() - 1;
  const bool as_is = mask.scalar_type() == torch::headeronly::ScalarType::Float && sizes.rank() >= 1 &&
                     sizes[last] == e.keys && (e.keys <= 1 || strides[last] == 1);
  return as_is ? mask : call_plain("rocm_sd::_float_mask", mask, e.keys);
}

Shape padded(const Shape& sizes) {
  Shape shape = {1, 1, 1, 1};
  for (int i = 1; i <= sizes.rank(); ++i) shape[4 - i] = sizes[sizes.rank() - i];
  return shape;
}

// Row-major over the dimensions in which it differs; expanded ones are one long.
Tensor mask_view(const AtTensor& mask) {
  const Shape have = sizes_of(mask), steps = strides_of(mask);
  Shape shape = {1, 1, 1, 1}, row_major_steps = steps;
  for (int i = 1; i <= have.rank(); ++i)
    shape[4 - i] = steps[have.rank() - i] == 0 ? 1 : have[have.rank() - i];
  int64_t step = 1;
  for (int i = 1; i <= have.rank(); ++i) {
    row_major_steps[have.rank() - i] = shape[4 - i] == 1 ? steps[have.rank() - i] : step;
    step *= shape[4 - i];
  }
  if (row_major_steps == steps) return view_as(mask, shape);
  return row_major_of(mask).reshape(padded(have));
}

void check_mask(const AtTensor& q, const AtTensor& mask, const Extents& e) {
  using torch::headeronly::ScalarType;
  check_alike("rocm_sd::attention", q, mask, "mask", false);
  const ScalarType type = mask.scalar_type();
  check(type == ScalarType::Bool || type == ScalarType::Double || dtype_of(mask).has_value(),
        "rocm_sd::attention: mask ", shown(mask), ": expected bool (True is seen) or a float type");
  const Shape have = sizes_of(mask), full = {e.batch, e.heads, e.queries, e.keys};
  bool fits = have.rank() <= 4;
  for (int i = 1; fits && i <= have.rank(); ++i)
    fits = have[have.rank() - i] == 1 || have[have.rank() - i] == full[4 - i];
  check(fits, "rocm_sd::attention: mask ", shown(mask), " does not broadcast to ", full);
}

AtTensor ours(const AtTensor& q, const AtTensor& k, const AtTensor& v, const OptionalAt& mask,
              const Extents& e, std::optional<double> scale, bool causal) {
  take_if(v.size(3) == e.dim, "v's heads are ", v.size(3), " wide, k's ", e.dim);
  take_if(e.keys > 0 && e.dim > 0, "nothing to attend to");
  take_if(!scale || *scale != 0, "a scale of zero");
  const OptionalAt additive = mask ? OptionalAt(float_mask(*mask, e)) : std::nullopt;
  OpScope scope(q);
  AttentionArgs args{.heads = static_cast<int>(e.heads), .causal = causal};
  if (scale) args.scale = static_cast<float>(*scale);
  Tensor mask_4d;
  if (additive) {
    mask_4d = mask_view(*additive);
    args.mask = &mask_4d;
  }
  const Shape sizes = {e.batch, e.heads, e.queries, e.dim};
  const auto packed = [](const AtTensor& x) { return is_packed(sizes_of(x), strides_of(x)); };
  const bool per_head_mask = additive && (mask_4d.dim(0) > 1 || mask_4d.dim(1) > 1);
  if (!(packed(q) && packed(k) && packed(v)) && !per_head_mask) {
    const auto fq = folded_rows(q), fk = folded_rows(k), fv = folded_rows(v);
    if (fq && fk && fv) {  // images and heads as one dimension
      args.heads = 1;
      const Tensor y = attention(scope.exec(), *fq, *fk, *fv, args);
      return with_strides(scope.give(y, sizes, row_major(sizes)), packed_strides(sizes));
    }
  }
  const Tensor y = attention(scope.exec(), packed_rows(q), packed_rows(k), packed_rows(v), args);
  return scope.give(y, sizes, packed_strides(sizes));
}

}  // namespace

AtTensor attention(AtTensor q, AtTensor k, AtTensor v, OptionalAt mask, std::optional<double> scale,
                   bool causal) {
  const Extents e = check_operands(q, k, v);
  if (mask) check_mask(q, *mask, e);
  const Shape sizes = {e.batch, e.heads, e.queries, v.size(3)};
  if (sizes.numel() == 0) return empty_strided_like(q, sizes, packed_strides(sizes));
  const auto problem = [&] {
    return concat(describe(q), " x ", describe(k), mask ? " masked" : "", causal ? " causal" : "");
  };
  return ours_or_plain(
      "attention", problem, [&] { return ours(q, k, v, mask, e, scale, causal); },
      [&] { return call_plain("rocm_sd::_attention_plain", q, k, v, mask, scale, causal); });
}

AtTensor vae_attention(AtTensor q, AtTensor k, AtTensor v, std::optional<double> scale) {
  constexpr const char* kOp = "rocm_sd::vae_attention";
  check(q.dim() == 4 && same_sizes(q, k) && same_sizes(q, v), kOp, ": expected q, k and v [B,C,H,W], got ",
        shown(q), ", ", shown(k), " and ", shown(v));
  check_alike(kOp, q, k, "k");
  check_alike(kOp, q, v, "v");
  const Shape sizes = sizes_of(q);
  if (sizes.numel() == 0) return empty_strided_like(q, sizes, channels_last(sizes));
  return ours_or_plain(
      "vae_attention", [&] { return describe(q); },
      [&] {
        take_if(!scale || *scale != 0, "a scale of zero");
        OpScope scope(q);
        const auto tokens = [&](const AtTensor& x) {
          return nhwc_of(x).reshape({sizes[0], sizes[2] * sizes[3], sizes[1]});  // [B,HW,C]
        };
        AttentionArgs args;
        if (scale) args.scale = static_cast<float>(*scale);
        const Tensor y = attention(scope.exec(), tokens(q), tokens(k), tokens(v), args);
        return scope.give(y, sizes, channels_last(sizes));
      },
      [&] { return call_plain("rocm_sd::_vae_attention_plain", q, k, v, scale); });
}

}  // namespace rocm_sd::torch_ops
