#include "models/low_rank.hpp"

#include <algorithm>
#include <functional>

#include "base/error.hpp"
#include "kernels/conv/conv2d.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/factor_columns.hpp"
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

// to = up, each column times 1 + its factor: in float, rounded once.
void scale_up(Exec& ex, const LowRank& terms, const Tensor& factors, const Tensor& to) {
  const Tensor flat = terms.up.stored().values.reshape({factors.numel(), terms.step});
  copy_into(ex, add_scaled(ex, flat, flat, factors), to.reshape(flat.shape()));
}

// A change of the weight moves the weight twice, whatever is multiplied by it; terms read all of x, multiply
// by narrow tiles, and lengthen the product by a step. On an H200 the change is the faster of both from as
// many rows as outputs on, for filters from twice as many on: a filter's terms multiply by more than they
// read.
bool change_costs_less(int64_t rows, int64_t outputs, bool filter) {
  return (filter ? 2 : 1) * outputs <= rows;
}

// The layer's weight with its terms in it; none where the terms cost less, for rows of strengths of their
// own, and for weights that are not stored as they are multiplied.
std::optional<LinearWeight> changed(Exec& ex, int64_t rows, const LinearWeight& w, const LowRank& terms) {
  if (ex.device().kind() == DeviceKind::kHost || !terms.strengths->alike()) return std::nullopt;
  if (w.weight.stored_as() != w.weight.dtype() || terms.down.dtype() != w.weight.dtype()) return std::nullopt;
  if (!change_costs_less(rows, w.weight.dim(0), false)) return std::nullopt;
  const auto make = [&](const Tensor& plain) { return std::make_shared<FactorColumns>(ex.device(), plain); };
  // A call of fewer rows reads the plain form.
  const auto pack = terms.down.packed("columns", make, true);
  const Tensor matrix = w.weight.stored().values;  // [out,in]
  StoredWeight stored(linear(ex, terms.strengths->scaled_up(terms),
                             LinearWeight{static_cast<const FactorColumns&>(*pack).columns(), std::nullopt},
                             {.residual = &matrix, .reads_constants = true}));
  stored.made_in_run = true;
  return LinearWeight{Weight(std::move(stored)), w.bias};
}

int64_t rows_of(const Tensor& x) { return x.numel() / std::max<int64_t>(x.dim(-1), 1); }

}  // namespace

void RowStrengths::set(std::vector<std::vector<float>> rows) {
  if (rows == rows_) return;
  require<InternalError>(!alike_ || std::ranges::adjacent_find(rows, std::not_equal_to<>()) == rows.end(),
                         "run-time LoRAs: rows of different strengths, where all were to be alike");
  rows_ = std::move(rows);
  // Tables of more rows belong to stages that are gone; those of fewer may be of this one's leading rows.
  const auto count = static_cast<int64_t>(rows_.size());
  std::erase_if(tables_, [&](const auto& entry) { return entry.first.rows > count; });
  for (const auto& [key, table] : tables_) fill(key, table);
  forget_gone();
  if (scaled_.empty()) return;
  for (const auto& [terms, scaled] : scaled_) upload_factors(*terms, scaled.factors);
  if (!scale_all_)
    scale_all_.emplace("strengths of run-time LoRAs", scratch_, [this](Exec& ex) {
      for (const auto& [terms, scaled] : scaled_) scale_up(ex, *terms, scaled.factors, scaled.up);
    });
  scale_all_->run();
  device_.synchronize();  // a change of weights does not wait for it: Epilogue::reads_constants
}

const Tensor& RowStrengths::scaled_up(const LowRank& terms) {
  forget_gone();
  Scaled& scaled = scaled_[&terms];
  if (scaled.up) return scaled.up;
  scale_all_.reset();
  scaled.terms = terms.weak_from_this();
  scaled.up = make_tensor(device_, terms.up.shape(), terms.up.dtype());
  scaled.factors =
      make_tensor(device_, {terms.up.dim(0) * static_cast<int64_t>(terms.columns.size())}, DType::kF32);
  upload_factors(terms, scaled.factors);
  Exec ex(scratch_);
  scale_up(ex, terms, scaled.factors, scaled.up);
  device_.synchronize();  // as set()
  return scaled.up;
}

void RowStrengths::upload_factors(const LowRank& terms, const Tensor& factors) const {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(factors.numel()));
  for (int64_t row = 0; row < terms.up.dim(0); ++row)
    for (const int adapter : terms.columns) values.push_back(strength(0, adapter) - 1);
  upload(device_, factors, values.data(), factors.numel());
}

void RowStrengths::forget_gone() {
  if (std::erase_if(scaled_, [](const auto& entry) { return entry.second.terms.expired(); }))
    scale_all_.reset();
}

float RowStrengths::strength(size_t row, int adapter) const {
  return row < rows_.size() ? rows_[row].at(static_cast<size_t>(adapter)) : 0.0f;
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
        values.insert(values.end(), static_cast<size_t>(key.step), strength(row, adapter) - less);
  upload(device_, table, values.data(), table.numel());
}

uint64_t RowStrengths::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, table] : tables_) bytes += table.bytes();
  for (const auto& [terms, scaled] : scaled_) bytes += scaled.up.bytes() + scaled.factors.bytes();
  return bytes;
}

uint64_t LowRank::bytes() const { return down.stored_bytes() + up.stored_bytes(); }

Tensor linear_with_terms(Exec& ex, const Tensor& x, const LinearWeight& w, const LowRank* terms,
                         const Epilogue& epilogue, const Tensor* of_down) {
  if (!terms) return linear(ex, x, w, epilogue);
  if (!of_down)
    if (const auto own = changed(ex, rows_of(x), w, *terms)) return linear(ex, x, *own, epilogue);
  const Tensor states = states_of(ex, *terms, of_down ? *of_down : x);  // [...,R]
  const LowRankProduct term{&states, &terms->up, true};
  Epilogue added = epilogue;
  added.low_rank = &term;
  return linear(ex, x, w, added);
}

Tensor linear_geglu_with_terms(Exec& ex, const Tensor& x, const LinearWeight& w, const LowRank* terms,
                               const Tensor* of_down) {
  if (!terms) return linear_geglu(ex, x, w);
  if (!of_down)
    if (const auto own = changed(ex, rows_of(x), w, *terms)) return linear_geglu(ex, x, *own);
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

std::optional<FilterChange> filter_change(Exec& ex, const Tensor& x, const ConvWeight& w,
                                          const LowRank& terms, const ConvArgs& args) {
  if (ex.device().kind() == DeviceKind::kHost || !terms.strengths->alike() ||
      !conv2d_takes_change(ex, w, args) || terms.down.dtype() != w.weight.dtype())
    return std::nullopt;
  const int64_t pixels = x.dim(0) * (x.dim(1) / args.stride) * (x.dim(2) / args.stride);
  if (!change_costs_less(pixels, w.weight.dim(0), true)) return std::nullopt;
  return FilterChange{&terms.strengths->scaled_up(terms), &terms.down};
}

}  // namespace rocm_sd
