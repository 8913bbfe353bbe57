// Rows of numbers stretched to 0..1.
// Problem   y[r, i] = factor * (x[r, i] - least[r]) / (most[r] - least[r]); a row of one value gives 0; x [rows, cols]
// Mapping   a wave takes a row, the grid's waves in turn
// Traffic   x twice, the second time from cache; y once
// Numerics  float
// Limits    none
#pragma once

#include "composable_kernels/block.hpp"

namespace rocm_sd {

struct RowRangeParams {
  const float* x;  // [rows, cols]
  float* y;        // [rows, cols]
  int64_t rows, cols;
  float factor;
  uint32_t workgroups;  // of the grid
};

constexpr int kRowRangeWaves = 4;  // of a workgroup: rows at a time

template <class Arch>
ROCM_SD_DEVICE void row_range_body(const RowRangeParams& p, const Block<Arch>& block) {
  for (int64_t row = block.first_row(); row < p.rows; row += block.row_stride()) {
    const float* x = p.x + row * p.cols;
    float most = x[0], least_negated = -x[0];
    for (int64_t i = block.lane(); i < p.cols; i += Arch::lanes) {
      most = x[i] > most ? x[i] : most;
      least_negated = -x[i] > least_negated ? -x[i] : least_negated;
    }
    most = Arch::wave_max(most);
    least_negated = Arch::wave_max(least_negated);
    const float span = most + least_negated;
    const float scale = span > 0 ? p.factor / span : 0.0f;
    for (int64_t i = block.lane(); i < p.cols; i += Arch::lanes)
      p.y[row * p.cols + i] = (x[i] + least_negated) * scale;
  }
}

}  // namespace rocm_sd
