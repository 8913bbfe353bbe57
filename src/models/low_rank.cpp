#include "models/low_rank.hpp"

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/linear.hpp"

namespace rocm_sd {
namespace {

// s * d, as d + (s - 1) d: computed in float and rounded once. d [B,...,R]
Tensor scaled(Exec& ex, const LowRank& terms, const Tensor& d) {
  const int64_t rows = d.dim(0), tokens = rows > 0 ? d.numel() / rows / terms.rank() : 0;
  if (d.numel() == 0) return d;
  const Tensor& table = terms.strengths->table(rows, tokens, terms.columns);
  const Tensor flat = d.reshape({d.numel() / terms.step, terms.step});
  return add_scaled(ex, flat, flat, table).reshape(d.shape());
}

// x [B,...,in] -> [B,...,R]
Tensor states(Exec& ex, const LowRank& terms, const Tensor& x) {
  return scaled(ex, terms, linear(ex, x, LinearWeight{terms.down, std::nullopt}));
}

// The epilogue's residual + up d, in the type of the product's result.
Tensor with_residual(Exec& ex, const LowRank& terms, const Tensor& d, const Epilogue& epilogue) {
  return linear(ex, d, LinearWeight{terms.up, std::nullopt},
                {.residual = epilogue.residual, .dtype = epilogue.dtype});
}

}  // namespace

void RowStrengths::set(std::vector<std::vector<float>> rows) {
  if (rows == rows_) return;
  rows_ = std::move(rows);
  // Tables of another batch belong to stages that are gone.
  const auto count = static_cast<int64_t>(rows_.size());
  std::erase_if(tables_, [&](const auto& entry) { return entry.first.first.first != count; });
  for (const auto& [key, table] : tables_) fill(key, table);
}

const Tensor& RowStrengths::table(int64_t rows, int64_t tokens, const std::vector<int>& columns) {
  const Key key{{rows, tokens}, columns};
  Tensor& table = tables_[key];
  if (!table) {
    table = make_tensor(device_, {rows * tokens * static_cast<int64_t>(columns.size())}, DType::kF32);
    fill(key, table);
  }
  return table;
}

void RowStrengths::fill(const Key& key, const Tensor& table) const {
  const auto& [extents, columns] = key;
  std::vector<float> values;
  values.reserve(static_cast<size_t>(table.numel()));
  for (size_t row = 0; row < static_cast<size_t>(extents.first); ++row)
    for (int64_t token = 0; token < extents.second; ++token)
      for (const int adapter : columns)
        values.push_back((row < rows_.size() ? rows_[row].at(static_cast<size_t>(adapter)) : 0.0f) - 1.0f);
  upload(device_, table, values.data(), table.numel());
}

uint64_t RowStrengths::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, table] : tables_) bytes += table.bytes();
  return bytes;
}

uint64_t LowRank::bytes() const {
  return down.stored_bytes() + up.stored_bytes() + (extended ? extended.stored_bytes() : 0);
}

Tensor linear_with_terms(Exec& ex, const Tensor& x, const LinearWeight& w, const LowRank* terms,
                         const Epilogue& epilogue, const Tensor* of_down) {
  if (!terms) return linear(ex, x, w, epilogue);
  const Tensor residual = with_residual(ex, *terms, states(ex, *terms, of_down ? *of_down : x), epilogue);
  Epilogue added = epilogue;
  added.residual = &residual;
  return linear(ex, x, w, added);
}

Tensor linear_geglu_with_terms(Exec& ex, const Tensor& x, const LinearWeight& w, const LowRank* terms,
                               const Tensor* of_down) {
  if (!terms) return linear_geglu(ex, x, w);
  Tensor d = states(ex, *terms, of_down ? *of_down : x);
  if (!terms->extended) {
    const Tensor residual = with_residual(ex, *terms, std::exchange(d, {}), {});  // [...,2M]
    return geglu(ex, linear(ex, x, w, {.residual = &residual}));
  }
  const Tensor both = concat_channels(ex, x, std::exchange(d, {}));  // [...,in+R]
  return linear_geglu(ex, both, LinearWeight{terms->extended, w.bias});
}

Tensor conv2d_terms(Exec& ex, const Tensor& x, const LowRank& terms, const ConvArgs& args) {
  ConvArgs own = args;
  own.epilogue = {};
  const Tensor d = conv2d(ex, x, ConvWeight{terms.down, std::nullopt}, own);  // [N,H,W,R]
  return with_residual(ex, terms, scaled(ex, terms, d), args.epilogue);
}

}  // namespace rocm_sd
