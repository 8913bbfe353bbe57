// Layer norm over rows.
// Problem   y[r] = (x[r] - mean) / sqrt(variance + eps) * gain + bias; x [rows, cols]
// Mapping   kLanes lanes per row, so that a wave takes several short rows at a time; a lane owns every
//           kLanes-th pack of the row and keeps it in registers
// Traffic   x once, y once; gain and bias once per wave where they fit in registers, else once per row
//           (from cache)
// Numerics  two passes over the registers, float; lanes summed as a tree
// Limits    cols a multiple of the pack and at most kLanes * kPacks packs; layer_norm_long_body takes any
#pragma once

#include "composable_kernels/block.hpp"
#include "composable_kernels/pack.hpp"
#include "composable_kernels/tile/unrolled.hpp"

namespace rocm_sd {

template <class T>
struct LayerNormParams {
  const T* x;  // [rows, cols]
  const float *gain, *bias;
  T* y;  // under to_bf16 of bf16
  int64_t rows;
  int32_t cols;
  uint32_t workgroups;  // of the grid
  float eps;
  int32_t to_bf16;  // y is bf16; with x of float only
};

// Cfg: T, the storage type; kVec, elements of a pack; kLanes of a row, which divide the wave's; kPacks of a
// lane. The lanes of a wave whose row lies behind the last one repeat that one and store nothing.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void layer_norm_body(const LayerNormParams<typename Cfg::T>& p, const Block<Arch>& block) {
  using T = typename Cfg::T;
  constexpr int kVec = Cfg::kVec, kPacks = Cfg::kPacks, kLanes = Cfg::kLanes, kRows = Arch::lanes / kLanes;
  constexpr bool kKeepGain = kPacks <= 5;
  const float share = 1.0f / static_cast<float>(p.cols);
  const int lane = block.lane() % kLanes;
  const auto column = [&](int k) { return (lane + k * kLanes) * kVec; };
  const auto row_sum = [](float x) { return sum_of_lanes<Arch, kLanes>(x); };

  Pack<float, kVec> gain[kKeepGain ? kPacks : 1], bias[kKeepGain ? kPacks : 1];
  const auto load_gain = [&](int k, int to) {
    gain[to] = load_pack<kVec>(p.gain + column(k));
    bias[to] = load_pack<kVec>(p.bias + column(k));
  };
  bool first = true;
  for (int64_t rows = block.first_row() * kRows; rows < p.rows; rows += block.row_stride() * kRows) {
    const int64_t own = rows + block.lane() / kLanes, row = own < p.rows ? own : p.rows - 1;
    const T* x = p.x + row * p.cols;
    Pack<T, kVec> kept[kPacks];
    float sum = 0;
    unrolled<kPacks>([&](int k) {
      if (column(k) < p.cols) kept[k] = load_pack<kVec>(x + column(k));
    });
    if constexpr (kKeepGain) {  // behind the row's loads, before they are waited for
      if (first) {
        unrolled<kPacks>([&](int k) {
          if (column(k) < p.cols) load_gain(k, k);
        });
      }
      first = false;
    }
    unrolled<kPacks>([&](int k) {
      if (column(k) < p.cols)
        for (int j = 0; j < kVec; ++j) sum += to_float(kept[k].x[j]);
    });
    const float mean = row_sum(sum) * share;
    float squares = 0;
    unrolled<kPacks>([&](int k) {
      if (column(k) < p.cols)
        for (int j = 0; j < kVec; ++j) {
          const float d = to_float(kept[k].x[j]) - mean;
          squares += d * d;
        }
    });
    const float scale = 1.0f / Arch::sqrt(row_sum(squares) * share + p.eps);
    if (own >= p.rows) continue;
    // No unrolled(): of its lambda clang vectorises the conversions across packs, for 4 to 24 more registers.
    ROCM_SD_UNROLL
    for (int k = 0; k < kPacks; ++k) {
      if (column(k) < p.cols) {
        if constexpr (!kKeepGain) load_gain(k, 0);
        const int at = kKeepGain ? k : 0;
        float values[kVec];
        for (int j = 0; j < kVec; ++j)
          values[j] = (to_float(kept[k].x[j]) - mean) * scale * gain[at].x[j] + bias[at].x[j];
        if constexpr (sizeof(T) == 4) {
          if (p.to_bf16) {
            Pack<Bf16, kVec> rounded;
            store_all(rounded, values);
            store_pack(reinterpret_cast<Bf16*>(p.y) + row * p.cols + column(k), rounded);
            continue;
          }
        }
        Pack<T, kVec> out;
        store_all(out, values);
        store_pack(p.y + row * p.cols + column(k), out);
      }
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
    const auto write = [&](int64_t c, float value) {
      if constexpr (sizeof(typename Cfg::T) == 4)
        if (p.to_bf16) return store(reinterpret_cast<Bf16*>(p.y)[row * p.cols + c], value);
      store(p.y[row * p.cols + c], value);
    };
    const float mean = wave_sum_over(block, p.cols, [&](int64_t c) { return to_float(x[c]); }) * share;
    const float variance = wave_sum_over(block, p.cols,
                                         [&](int64_t c) {
                                           const float d = to_float(x[c]) - mean;
                                           return d * d;
                                         }) *
                           share;
    const float scale = 1.0f / Arch::sqrt(variance + p.eps);
    for (int64_t c = block.lane(); c < p.cols; c += Arch::lanes)
      write(c, (to_float(x[c]) - mean) * scale * p.gain[c] + p.bias[c]);
  }
}

}  // namespace rocm_sd
