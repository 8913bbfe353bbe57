// A workgroup's place in the grid, and sums over its wave and over the whole of it. Bodies split work by
// lane, by thread or by wave and never ask how many there are.
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

// The grid is a line of workgroups. arch/scalar.hpp has a form of its own: one lane.
template <class Arch>
struct Block {
  uint32_t workgroups = 1;  // of the grid
  int waves = 1;            // of a workgroup; a constant of the kernel, so that what follows from it folds

  ROCM_SD_DEVICE int64_t group() const { return Arch::group_x(); }
  ROCM_SD_DEVICE int thread() const { return Arch::thread(); }
  ROCM_SD_DEVICE int threads() const { return waves * Arch::lanes; }
  ROCM_SD_DEVICE int lane() const { return Arch::lane(); }
  ROCM_SD_DEVICE int wave() const { return Arch::uniform(Arch::thread() / Arch::lanes); }
  ROCM_SD_DEVICE void barrier() const { Arch::barrier(); }

  // Rows dealt out to the waves of the grid in turn.
  ROCM_SD_DEVICE int64_t first_row() const { return group() * waves + wave(); }
  ROCM_SD_DEVICE int64_t row_stride() const { return static_cast<int64_t>(workgroups) * waves; }
  // Items dealt out to its threads in turn.
  ROCM_SD_DEVICE int64_t first_item() const { return group() * threads() + thread(); }
  ROCM_SD_DEVICE int64_t item_stride() const { return static_cast<int64_t>(workgroups) * threads(); }
};

// The sum over i < n of term(i), lanes taking turns; the same value in every lane.
template <class Arch, class Term>
ROCM_SD_DEVICE float wave_sum_over(const Block<Arch>& block, int64_t n, const Term& term) {
  float sum = 0;
  for (int64_t i = block.lane(); i < n; i += Arch::lanes) sum += term(i);
  return Arch::wave_sum(sum);
}
template <class Arch, class Term>
ROCM_SD_DEVICE double wave_sum_over_double(const Block<Arch>& block, int64_t n, const Term& term) {
  double sum = 0;
  for (int64_t i = block.lane(); i < n; i += Arch::lanes) sum += term(i);
  return Arch::wave_sum(sum);
}

// The sum over the workgroup, the same in every thread: lanes as a tree, then waves in order. lds: one Number
// per wave; it may be used again at once, for the sum begins with a barrier.
template <class Arch, class Number>
ROCM_SD_DEVICE Number group_sum(const Block<Arch>& block, Number x, Number* lds) {
  x = Arch::wave_sum(x);
  if (block.waves == 1) return x;
  const int wave_of_lane = block.wave();  // read across lanes, so outside the branch
  block.barrier();
  if (block.lane() == 0) lds[wave_of_lane] = x;
  block.barrier();
  Number sum = 0;
  for (int wave = 0; wave < block.waves; ++wave) sum += lds[wave];
  return sum;
}

}  // namespace rocm_sd
