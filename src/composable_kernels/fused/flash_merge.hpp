// Flash attention over a part of the keys each, merged.
// Problem   y = sum over splits of 2^(maximum - base) sums / sum of 2^(maximum - base) total
// Mapping   one query of one head per call; lanes take channels in turn
// Traffic   sums and stats once, y once
// Numerics  float; splits in order
// Limits    none
#pragma once

#include "composable_kernels/fused/flash_params.hpp"

namespace rocm_sd {

template <class Arch, class T>
ROCM_SD_DEVICE void flash_merge(const FlashMergeParams<T>& p, int64_t row, int lane, int lanes) {
  constexpr float kHidden = -__builtin_inff();
  float base = kHidden, total = 0;
  for (int s = 0; s < p.splits; ++s)
    base = Arch::max(base, p.stats[(s * static_cast<int64_t>(p.rows) + row) * 2]);
  const float from = base == kHidden ? 0.0f : base;
  for (int s = 0; s < p.splits; ++s) {
    const float* stats = p.stats + (s * static_cast<int64_t>(p.rows) + row) * 2;
    total += Arch::exp2(stats[0] - from) * stats[1];
  }
  const float share = total == 0 ? 0.0f : Arch::reciprocal(total);
  const int64_t query = row % p.queries, head = row / p.queries % p.heads, image = row / p.queries / p.heads;
  T* y = p.y + ((image * p.queries + query) * p.heads + head) * p.dim;
  for (int d = lane; d < p.dim; d += lanes) {
    float sum = 0;
    for (int s = 0; s < p.splits; ++s) {
      const int64_t at = s * static_cast<int64_t>(p.rows) + row;
      sum += Arch::exp2(p.stats[at * 2] - from) * p.sums[at * p.dim + d];
    }
    store(y[d], sum * share);
  }
}

}  // namespace rocm_sd
