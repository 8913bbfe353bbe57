// The main loop of every product: C[n][m] += sum over k of weight[n][k] * activation[m][k].
// Mapping   a workgroup computes [kBlockM rows][kBlockN channels]; waves divide it in both directions; a wave
//           holds [kAtomsN][kAtomsM] atoms of 16 channels by 16 rows
// Traffic   tiles [rows][kBlockK] of both operands pass through LDS in kStages stages: by async copies that
//           run kStages - 1 steps ahead, or through registers one step ahead (then kStages is 1 or 2)
// Numerics  16-bit operands, float accumulators, k ascending
#pragma once

#include "composable_kernels/tile/copy.hpp"
#include "composable_kernels/tile/plain_atom.hpp"

namespace rocm_sd {

template <class Arch, class Cfg>
struct Accumulators {
  using Atom = AtomOf<Arch, typename Cfg::T>;
  typename Atom::C c[Cfg::kAtomsN][Cfg::kAtomsM];
};

// Which part of the workgroup's tile a wave computes.
template <class Arch, class Cfg>
struct WavePlace {
  int wave, m, n;  // m, n: its first row and channel in the tile

  ROCM_SD_DEVICE WavePlace() {
    wave = Arch::uniform(Arch::thread() / Arch::lanes);
    m = wave % Cfg::kShape.waves_m * Cfg::kWaveM;
    n = wave / Cfg::kShape.waves_m * Cfg::kWaveN;
  }
};

// One step: the wave's atoms over kBlockK of tiles that lie in LDS.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void multiply_tiles(Accumulators<Arch, Cfg>& acc, const typename Cfg::T* weights,
                                   const typename Cfg::T* rows) {
  using Atom = AtomOf<Arch, typename Cfg::T>;
  typename Atom::B b[2];  // the next one is on its way while this one is multiplied
  b[0] = Atom::template load_b_at<Cfg>(rows, 0);
  ROCM_SD_UNROLL
  for (int k = 0; k < Cfg::kBlockK; k += Atom::kDepth) {
    typename Atom::A a[Cfg::kAtomsN];
    ROCM_SD_UNROLL
    for (int i = 0; i < Cfg::kAtomsN; ++i) a[i] = Atom::template load_at<Cfg>(weights + 16 * i * Cfg::kLd, k);
    ROCM_SD_UNROLL
    for (int j = 0; j < Cfg::kAtomsM; ++j) {
      const int at = k / Atom::kDepth * Cfg::kAtomsM + j;
      const bool last_row = j + 1 == Cfg::kAtomsM;
      if (!last_row || k + Atom::kDepth < Cfg::kBlockK)
        b[(at + 1) % 2] = Atom::template load_b_at<Cfg>(rows + (last_row ? 0 : 16 * (j + 1) * Cfg::kLd),
                                                        last_row ? k + Atom::kDepth : k);
      ROCM_SD_UNROLL
      for (int i = 0; i < Cfg::kAtomsN; ++i) Atom::mma(acc.c[i][j], a[i], b[at % 2]);
    }
  }
}

// Adds steps [first, last) of kBlockK each to acc. weights: Source of the kBlockN channels, rows: Source of
// the kBlockM rows. lds: Cfg::kLdsBytes, aligned to 16; free for other use after a barrier. Every thread of
// the workgroup must come here.
template <class Arch, class Cfg, class Weights, class Rows>
ROCM_SD_DEVICE void main_loop(Accumulators<Arch, Cfg>& acc, char* lds, const Weights& weights,
                              const Rows& rows, int first, int last) {
  using T = typename Cfg::T;
  constexpr int kStages = Cfg::kStages;
  static_assert(Arch::kAsyncCopies ? kStages >= 2 : kStages <= 2);
  constexpr int kAhead = kStages > 1 ? kStages - 1 : 1;  // steps under way
  constexpr int kRowsAt = Cfg::kBlockN * Cfg::kLd, kStageSize = (Cfg::kBlockN + Cfg::kBlockM) * Cfg::kLd;
  const WavePlace<Arch, Cfg> place;
  T* const tiles = reinterpret_cast<T*>(lds);
  TileCopy<Arch, Cfg, Cfg::kBlockN, Weights> weight_copy(weights);
  TileCopy<Arch, Cfg, Cfg::kBlockM, Rows> row_copy(rows);
  const auto issue = [&](int step, int stage) {
    if (step < last) {
      T* const at = tiles + stage * kStageSize;
      weight_copy.issue(at, step * Cfg::kBlockK);
      row_copy.issue(at + kRowsAt, step * Cfg::kBlockK);
    }
    if constexpr (Arch::kAsyncCopies) Arch::commit_copies();
  };
  ROCM_SD_UNROLL
  for (int s = 0; s < kAhead; ++s) issue(first + s, s);
  int stage = 0, free_stage = kStages - 1;  // of this step; the one that the next copy goes to
  for (int step = first; step < last; ++step) {
    T* const at = tiles + stage * kStageSize;
    if constexpr (Arch::kAsyncCopies) {
      Arch::template wait_copies<kAhead - 1>();
    } else {
      if constexpr (kStages == 1) Arch::barrier();  // the tile's last readers
      weight_copy.land(at);
      row_copy.land(at + kRowsAt);
    }
    Arch::barrier();
    issue(step + kAhead, free_stage);
    multiply_tiles(acc, at + place.n * Cfg::kLd, at + kRowsAt + place.m * Cfg::kLd);
    if constexpr (kStages > 1) {
      stage = stage + 1 == kStages ? 0 : stage + 1;
      free_stage = free_stage + 1 == kStages ? 0 : free_stage + 1;
    }
  }
}

// The main loop as bodies take it, so that a family may offer another (hopper/wgmma_product.hpp).
template <class Arch, class Cfg>
struct WaveProduct {
  template <class Weights, class Rows>
  static ROCM_SD_DEVICE void multiply(Accumulators<Arch, Cfg>& acc, char* lds, const Weights& weights,
                                      const Rows& rows, int first, int last) {
    main_loop<Arch, Cfg>(acc, lds, weights, rows, first, last);
  }
};

}  // namespace rocm_sd
