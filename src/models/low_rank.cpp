#include "models/low_rank.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/linear.hpp"

namespace rocm_sd {
namespace {

// s * d of multiply(epilogue), which makes d [B,...,R]: by the epilogue of the product on GPUs, on the host
// as d + (s - 1) d. Computed in float either way.
template <class Multiply>
Tensor scaled(Exec& ex, const LowRank& terms, int64_t rows, const Multiply& multiply) {
  if (rows == 0) return multiply(Epilogue{});
  if (ex.device().kind() != DeviceKind::kHost) {
    const Tensor& table = terms.strengths->table(rows, terms.step, terms.columns);
    return multiply(Epilogue{.channel_scale = &table});
  }
  const Tensor d = multiply(Epilogue{});
  if (d.numel() == 0) return d;
  const Tensor& table = terms.strengths->token_table(rows, d.numel() / rows / terms.rank(), terms.columns);
  const Tensor flat = d.reshape({d.numel() / terms.step, terms.step});
  return add_scaled(ex, flat, flat, table).reshape(d.shape());
}

// x [B,...,in] -> [B,...,R]
Tensor states_of(Exec& ex, const LowRank& terms, const Tensor& x) {
  return scaled(ex, terms, x.dim(0), [&](const Epilogue& epilogue) {
    return linear(ex, x, LinearWeight{terms.down, std::nullopt}, epilogue);
  });
}

}  // namespace

void RowStrengths::set(std::vector<std::vector<float>> rows) {
  if (rows == rows_) return;
  rows_ = std::move(rows);
  // Tables of another batch belong to stages that are gone.
  const auto count = static_cast<int64_t>(rows_.size());
  std::erase_if(tables_, [&](const auto& entry) { return entry.first.rows != count; });
  for (const auto& [key, table] : tables_) fill(key, table);
}

const Tensor& RowStrengths::table(int64_t rows, int64_t step, const std::vector<int>& columns) {
  return made({rows, 0, step, columns});
}

const Tensor& RowStrengths::token_table(int64_t rows, int64_t tokens, const std::vector<int>& columns) {
  return made({rows, tokens, 1, columns});
}

const Tensor& RowStrengths::made(const Key& key) {
  Tensor& table = tables_[key];
  if (!table) {
    const auto columns = static_cast<int64_t>(key.columns.size()) * key.step;
    table = make_tensor(
        device_, key.tokens ? Shape{key.rows * key.tokens * columns} : Shape{key.rows, columns}, DType::kF32);
    fill(key, table);
  }
  return table;
}

void RowStrengths::fill(const Key& key, const Tensor& table) const {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(table.numel()));
  const float less = key.tokens ? 1.0f : 0.0f;
  for (size_t row = 0; row < static_cast<size_t>(key.rows); ++row)
    for (int64_t token = 0; token < std::max<int64_t>(key.tokens, 1); ++token)
      for (const int adapter : key.columns)
        values.insert(values.end(), static_cast<size_t>(key.step),
                      (row < rows_.size() ? rows_[row].at(static_cast<size_t>(adapter)) : 0.0f) - less);
  upload(device_, table, values.data(), table.numel());
}

uint64_t RowStrengths::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, table] : tables_) bytes += table.bytes();
  return bytes;
}

uint64_t LowRank::bytes() const { return down.stored_bytes() + up.stored_bytes(); }

Tensor linear_with_terms(Exec& ex, const Tensor& x, const LinearWeight& w, const LowRank* terms,
                         const Epilogue& epilogue, const Tensor* of_down) {
  if (!terms) return linear(ex, x, w, epilogue);
  const Tensor states = states_of(ex, *terms, of_down ? *of_down : x);  // [...,R]
  const LowRankProduct term{&states, &terms->up, true};
  Epilogue added = epilogue;
  added.low_rank = &term;
  return linear(ex, x, w, added);
}

Tensor linear_geglu_with_terms(Exec& ex, const Tensor& x, const LinearWeight& w, const LowRank* terms,
                               const Tensor* of_down) {
  if (!terms) return linear_geglu(ex, x, w);
  const Tensor states = states_of(ex, *terms, of_down ? *of_down : x);  // [...,R]
  const LowRankProduct term{&states, &terms->up, true};
  return linear_geglu(ex, x, w, &term);
}

Tensor conv2d_terms(Exec& ex, const Tensor& x, const LowRank& terms, const ConvArgs& args) {
  const Tensor states = scaled(ex, terms, x.dim(0), [&](const Epilogue& epilogue) {
    ConvArgs own = args;
    own.epilogue = epilogue;
    return conv2d(ex, x, ConvWeight{terms.down, std::nullopt}, own);  // [N,P,Q,R]
  });
  return linear(ex, states, LinearWeight{terms.up, std::nullopt},
                {.residual = args.epilogue.residual, .dtype = args.epilogue.dtype});
}

}  // namespace rocm_sd
