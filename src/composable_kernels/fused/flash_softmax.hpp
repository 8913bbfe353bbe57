// The online softmax of flash attention: running maximum and total of a wave's queries, the columns of its
// scores. Method: Milakov and Gimelshein, 2018; the lazy base: Zadouri et al., "FlashAttention-4", 2026.
#pragma once

#include "composable_kernels/tile/register_tile.hpp"

namespace rocm_sd {

// Scores are in units of which `scale` makes binary logarithms. The weights are taken relative to `base`,
// which follows the true maximum only when that has grown by 2^kSlack: most tiles then leave the sums alone,
// and a weight is at most 2^kSlack, far from overflow in any 16-bit type.
template <class Arch, class M, int kQueries>
struct OnlineSoftmax {
  using Vec = ColVec<M, kQueries>;
  static constexpr float kHidden = -__builtin_inff(), kSlack = 8;

  Vec base, total;  // total: of this lane's own elements

  ROCM_SD_DEVICE void clear() {
    fill(base, kHidden);
    fill(total, 0);
  }
  ROCM_SD_DEVICE bool outgrown(Vec& most, float scale) {
    bool grown = false;
    for_each(most, [&](float m, float from) { grown |= m * scale > from + kSlack; }, base);
    return grown;
  }
  // Moves the base to the maximum; factor: what sums so far have to be multiplied by.
  ROCM_SD_DEVICE void rebase(Vec& factor, const Vec& most, float scale) {
    for_each(
        factor,
        [&](float& f, float m, float& from, float& sum) {
          const float next = Arch::max(from, m * scale);
          f = from == kHidden ? 0.0f : Arch::exp2(from - next);
          from = next;
          sum *= f;
        },
        most, base, total);
  }
  // Scores become weights, in place. kSum: adds them to total.
  template <bool kSum, int kKeys>
  ROCM_SD_DEVICE void exponentiate(RegTile<M, kKeys, kQueries>& s, float scale) {
    Vec from = base;
    for_each(from, [](float& x) { x = x == kHidden ? 0.0f : x; });
    if constexpr (kSum)
      exp2_and_sum<Arch>(s, scale, from, total);
    else
      exp2<Arch>(s, scale, from);
  }
};

// totals -> what outputs are multiplied by: zero where no key was seen.
template <class Arch, class M, int kQueries>
ROCM_SD_DEVICE void invert(ColVec<M, kQueries>& total) {
  for_each(total, [](float& x) { x = x == 0 ? 0.0f : Arch::reciprocal(x); });
}

}  // namespace rocm_sd
