// Layer norm over rows.
// Problem   y[r] = (x[r] - mean) / sqrt(variance + eps) * gain + bias; x [rows, cols]
// Mapping   one wave per row at a time; a lane owns every lanes-th pack of the row and keeps it in registers
// Traffic   x once, y once; gain and bias once per wave where they fit in registers, else once per row
// (cache) Numerics  two passes over the registers, float; lanes summed as a tree Limits    cols a multiple of
// the pack and at most lanes * kPacks packs; layer_norm_long_body takes any
#pragma once

#include "composable_kernels/block.hpp"
#include "composable_kernels/pack.hpp"

namespace rocm_sd {

template <class T>
struct LayerNormParams {
  const T* x;  // [rows, cols]
  const float *gain, *bias;
  T* y;
  int64_t rows;
  int32_t cols;
  uint32_t groups;  // of the grid
  float eps;
};

// Cfg: T, the storage type; kVec, elements of a pack; kPacks of a lane.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void layer_norm_body(const LayerNormParams<typename Cfg::T>& p, const Block<Arch>& block) {
  using T = typename Cfg::T;
  constexpr int kVec = Cfg::kVec, kPacks = Cfg::kPacks;
  constexpr bool kKeepGain = kPacks <= 3;
  const float share = 1.0f / static_cast<float>(p.cols);
  const auto column = [&](int k) { return (block.lane() + k * Arch::lanes) * kVec; };

  Pack<float, kVec> gain[kKeepGain ? kPacks : 1], bias[kKeepGain ? kPacks : 1];
  if constexpr (kKeepGain) {
    ROCM_SD_UNROLL
    for (int k = 0; k < kPacks; ++k)
      if (column(k) < p.cols) {
        gain[k] = load_pack<kVec>(p.gain + column(k));
        bias[k] = load_pack<kVec>(p.bias + column(k));
      }
  }
  for (int64_t row = block.first_row(); row < p.rows; row += block.row_stride()) {
    const T* x = p.x + row * p.cols;
    Pack<T, kVec> kept[kPacks];
    float sum = 0;
    ROCM_SD_UNROLL
    for (int k = 0; k < kPacks; ++k)
      if (column(k) < p.cols) kept[k] = load_pack<kVec>(x + column(k));
    ROCM_SD_UNROLL
    for (int k = 0; k < kPacks; ++k)
      if (column(k) < p.cols)
        for (int j = 0; j < kVec; ++j) sum += to_float(kept[k].x[j]);
    const float mean = Arch::wave_sum(sum) * share;
    float squares = 0;
    ROCM_SD_UNROLL
    for (int k = 0; k < kPacks; ++k)
      if (column(k) < p.cols)
        for (int j = 0; j < kVec; ++j) {
          const float d = to_float(kept[k].x[j]) - mean;
          squares += d * d;
        }
    const float scale = 1.0f / Arch::sqrt(Arch::wave_sum(squares) * share + p.eps);
    ROCM_SD_UNROLL
    for (int k = 0; k < kPacks; ++k)
      if (column(k) < p.cols) {
        if constexpr (!kKeepGain) {
          gain[0] = load_pack<kVec>(p.gain + column(k));
          bias[0] = load_pack<kVec>(p.bias + column(k));
        }
        const int at = kKeepGain ? k : 0;
        Pack<T, kVec> out;
        for (int j = 0; j < kVec; ++j)
          store(out.x[j], (to_float(kept[k].x[j]) - mean) * scale * gain[at].x[j] + bias[at].x[j]);
        store_pack(p.y + row * p.cols + column(k), out);
      }
  }
}

// Rows of any length, element by element: x three times, once from memory where a row fits in cache.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void layer_norm_long_body(const LayerNormParams<typename Cfg::T>& p,
                                         const Block<Arch>& block) {
  const float share = 1.0f / static_cast<float>(p.cols);
  for (int64_t row = block.first_row(); row < p.rows; row += block.row_stride()) {
    const auto* x = p.x + row * p.cols;
    auto* y = p.y + row * p.cols;
    const float mean = wave_sum_over(block, p.cols, [&](int64_t c) { return to_float(x[c]); }) * share;
    const float variance = wave_sum_over(block, p.cols,
                                         [&](int64_t c) {
                                           const float d = to_float(x[c]) - mean;
                                           return d * d;
                                         }) *
                           share;
    const float scale = 1.0f / Arch::sqrt(variance + p.eps);
    for (int64_t c = block.lane(); c < p.cols; c += Arch::lanes)
      store(y[c], (to_float(x[c]) - mean) * scale * p.gain[c] + p.bias[c]);
  }
}

}  // namespace rocm_sd
