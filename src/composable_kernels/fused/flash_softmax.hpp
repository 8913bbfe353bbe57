// The online softmax over fragments: running maximum and total of the queries (columns) that a lane holds.
#pragma once

#include "composable_kernels/atom.hpp"

namespace rocm_sd {

// State of 16 queries. Scores are in units of which `scale` makes binary logarithms. The weights are taken
// relative to `base`, which follows the true maximum only when that has grown by 2^kSlack: most tiles then
// leave the sums alone, and a weight is at most 2^kSlack, far from overflow in any 16-bit type.
template <class Arch, class T>
struct FlashSoftmax {
  using M = Atom<Arch, T>;
  using C = typename M::C;
  static constexpr int kElements = static_cast<int>(sizeof(C) / sizeof(float));
  static constexpr float kHidden = -__builtin_inff(), kSlack = 8;

  float base[M::kColumns], total[M::kColumns];  // total: of this lane's own elements

  // An element of the lane in its column number c.
  static ROCM_SD_DEVICE int element_of(int c) {
    int found = 0;
    ROCM_SD_UNROLL
    for (int i = kElements - 1; i >= 0; --i) found = M::slot(i) == c ? i : found;
    return found;
  }

  ROCM_SD_DEVICE void clear() {
    ROCM_SD_UNROLL
    for (int c = 0; c < M::kColumns; ++c) base[c] = kHidden, total[c] = 0;
  }

  // The maximum over kAtoms atoms of scores, one per column of this lane.
  template <int kAtoms>
  static ROCM_SD_DEVICE void maximum(const C (&s)[kAtoms], float (&most)[M::kColumns]) {
    ROCM_SD_UNROLL
    for (int c = 0; c < M::kColumns; ++c) most[c] = kHidden;
    ROCM_SD_UNROLL
    for (int a = 0; a < kAtoms; ++a) {
      ROCM_SD_UNROLL
      for (int i = 0; i < kElements; ++i) most[M::slot(i)] = Arch::max(most[M::slot(i)], s[a].x[i]);
    }
    ROCM_SD_UNROLL
    for (int c = 0; c < M::kColumns; ++c) most[c] = M::column_max(most[c]);
  }

  ROCM_SD_DEVICE bool outgrown(const float (&most)[M::kColumns], float scale) const {
    bool grown = false;
    ROCM_SD_UNROLL
    for (int c = 0; c < M::kColumns; ++c) grown |= most[c] * scale > base[c] + kSlack;
    return grown;
  }

  // Moves the base to the maximum; factor: what sums so far have to be multiplied by.
  ROCM_SD_DEVICE void rebase(const float (&most)[M::kColumns], float scale, float (&factor)[M::kColumns]) {
    ROCM_SD_UNROLL
    for (int c = 0; c < M::kColumns; ++c) {
      const float next = Arch::max(base[c], most[c] * scale);
      factor[c] = base[c] == kHidden ? 0.0f : Arch::exp2(base[c] - next);
      base[c] = next;
      total[c] *= factor[c];
    }
  }

  // Scores become weights in place. kSum: adds them to total.
  template <bool kSum, int kAtoms>
  ROCM_SD_DEVICE void exponentiate(C (&s)[kAtoms], float scale) {
    float from[M::kColumns];
    ROCM_SD_UNROLL
    for (int c = 0; c < M::kColumns; ++c) from[c] = base[c] == kHidden ? 0.0f : base[c];
    ROCM_SD_UNROLL
    for (int a = 0; a < kAtoms; ++a) {
      ROCM_SD_UNROLL
      for (int i = 0; i < kElements; ++i) {
        float& x = s[a].x[i];
        x = Arch::exp2(x * scale - from[M::slot(i)]);
        if constexpr (kSum) total[M::slot(i)] += x;
      }
    }
  }
};

}  // namespace rocm_sd
