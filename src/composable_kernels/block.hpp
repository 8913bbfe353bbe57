// A workgroup's place in the grid, and sums over its wave. Bodies split work by lane and never ask how many
// there are.
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

// Each arch/<family>.hpp specialises it: first_row(), row_stride(), lane(), barrier().
template <class Arch>
struct Block;

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

}  // namespace rocm_sd
