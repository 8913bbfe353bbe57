// The main loop and the output by warpgroups (Hopper), for any Source: the same calls as tile/main_loop.hpp
// and tile/output.hpp, for a WarpgroupCfg.
// Mapping   a warpgroup computes kAtomsM times 64 rows by kWaveN channels; A is the activation here, so that
// a
//           lane holds pairs of channels and 4 lanes 8 consecutive ones of a row
// Traffic   async copies run kStages - 2 steps ahead; products of a step run while the next copies are issued
// Numerics  as in the main loop
#pragma once

#include "composable_kernels/arch/hopper.hpp"
#include "composable_kernels/tile/output.hpp"

namespace rocm_sd {

template <class Arch, class Cfg>
  requires(Cfg::kWarpgroups)
struct Accumulators<Arch, Cfg> {
  float x[Cfg::kAtomsM][Cfg::kWaveN / 2];
};

// The warpgroup's first row and channel in the workgroup's tile.
template <class Arch, class Cfg>
struct WarpgroupPlace {
  int m, n;

  ROCM_SD_DEVICE WarpgroupPlace() {
    const int group = Arch::uniform(Arch::thread() / (4 * Arch::lanes));
    m = group % Cfg::kGroupsM * Cfg::kAtomsM * 64;
    n = group / Cfg::kGroupsM * Cfg::kWaveN;
  }
};

// lds: Cfg::kLdsBytes, of any alignment.
template <class Arch, class Cfg, class Weights, class Rows>
  requires(Cfg::kWarpgroups)
ROCM_SD_DEVICE void main_loop(Accumulators<Arch, Cfg>& acc, char* lds, const Weights& weights,
                              const Rows& rows, int first, int last) {
  using T = typename Cfg::T;
  using Atom = WarpgroupAtom<T, Cfg::kWaveN>;
  constexpr int kStages = Cfg::kStages, kAhead = kStages - 2;
  constexpr int kRowsAt = Cfg::kBlockN * Cfg::kLd, kStageSize = (Cfg::kBlockN + Cfg::kBlockM) * Cfg::kLd;
  static_assert(kRowsAt * sizeof(T) % 1024 == 0 && kStageSize * sizeof(T) % 1024 == 0);
  const WarpgroupPlace<Arch, Cfg> place;
  lds += (1024 - reinterpret_cast<uint64_t>(lds) % 1024) % 1024;  // shared memory begins at a multiple of it
  T* const tiles = reinterpret_cast<T*>(lds);
  TileCopy<Arch, Cfg, Cfg::kBlockN, Weights> weight_copy(weights);
  TileCopy<Arch, Cfg, Cfg::kBlockM, Rows> row_copy(rows);
  const auto issue = [&](int step, int stage) {
    if (step < last) {
      T* const at = tiles + stage * kStageSize;
      weight_copy.issue(at, step * Cfg::kBlockK);
      row_copy.issue(at + kRowsAt, step * Cfg::kBlockK);
    }
    Arch::commit_copies();
  };
  ROCM_SD_UNROLL
  for (int s = 0; s < kAhead; ++s) issue(first + s, s);
  int stage = 0, free_stage = kAhead;
  const auto pin = [&] {
    ROCM_SD_UNROLL
    for (int i = 0; i < Cfg::kAtomsM; ++i) Arch::pin(acc.x[i]);
  };
  pin();
  for (int step = first; step < last; ++step) {
    Arch::template wait_copies<kAhead - 1>();
    Arch::publish_lds();
    // Behind this barrier every warpgroup has ended the products of step - 2, whose stage is filled next.
    Arch::barrier();
    issue(step + kAhead, free_stage);
    const T* const at = tiles + stage * kStageSize;
    const uint64_t weight = Arch::descriptor(at + place.n * Cfg::kLd);
    const uint64_t row = Arch::descriptor(at + kRowsAt + place.m * Cfg::kLd);
    Arch::begin_products();
    ROCM_SD_UNROLL
    for (int k = 0; k < Cfg::kBlockK / 16; ++k) ROCM_SD_UNROLL
    for (int i = 0; i < Cfg::kAtomsM; ++i)
      Atom::mma(acc.x[i], row + i * (64 * 128 / 16) + k * Arch::kDescriptorStep,
                weight + k * Arch::kDescriptorStep);
    Arch::commit_products();
    Arch::template wait_products<1>();
    stage = stage + 1 == kStages ? 0 : stage + 1;
    free_stage = free_stage + 1 == kStages ? 0 : free_stage + 1;
  }
  Arch::template wait_products<0>();
  pin();
}

// 4 lanes hold 4 groups of 8 channels as pairs: pair `lane % 4` of each group; afterwards lane q has all of
// group q. pairs[j]: of group j, then pair j of the lane's own group.
template <class Arch>
ROCM_SD_DEVICE void transpose_quad(float (&pairs)[4][2]) {
  ROCM_SD_UNROLL
  for (int mask = 1; mask <= 2; mask *= 2) {
    const bool upper = (Arch::lane() & mask) != 0;
    ROCM_SD_UNROLL
    for (int j = 0; j < 4; ++j) {
      if (j & mask) continue;
      ROCM_SD_UNROLL
      for (int e = 0; e < 2; ++e) {
        float &low = pairs[j][e], &high = pairs[j + mask][e];
        const float got = Arch::shuffle_xor(upper ? low : high, mask);
        if (upper)
          low = got;
        else
          high = got;
      }
    }
  }
}

// Channels 32 t .. 32 t + 31 of x, of the rows with this h: the lane's 8.
template <class Arch>
ROCM_SD_DEVICE void gather_channels(float (&v)[8], const float* x, int t, int h) {
  float pairs[4][2];
  ROCM_SD_UNROLL
  for (int j = 0; j < 4; ++j) ROCM_SD_UNROLL
  for (int e = 0; e < 2; ++e) pairs[j][e] = x[4 * (4 * t + j) + 2 * h + e];
  transpose_quad<Arch>(pairs);
  ROCM_SD_UNROLL
  for (int i = 0; i < 8; ++i) v[i] = pairs[i / 2][i % 2];
}

template <class Arch, class Cfg, bool kGated, class Finish>
  requires(Cfg::kWarpgroups)
ROCM_SD_DEVICE void finish_tile(const Accumulators<Arch, Cfg>& acc, char*, const Finish& finish) {
  constexpr int kWidth = kGated ? Cfg::kWaveN / 2 : Cfg::kWaveN;  // channels that the warpgroup writes
  static_assert(kWidth % 32 == 0);
  const WarpgroupPlace<Arch, Cfg> place;
  const int line = Arch::thread() / Arch::lanes % 4 * 16 + Arch::lane() / 4;
  const int channel = (kGated ? place.n / 2 : place.n) + Arch::lane() % 4 * 8;
  ROCM_SD_UNROLL
  for (int i = 0; i < Cfg::kAtomsM; ++i) ROCM_SD_UNROLL
  for (int h = 0; h < 2; ++h) ROCM_SD_UNROLL
  for (int t = 0; t < kWidth / 32; ++t) {
    const int row = place.m + 64 * i + line + 8 * h;
    float v[8], gate[8];
    gather_channels<Arch>(v, acc.x[i], t, h);
    if constexpr (kGated) {
      gather_channels<Arch>(gate, acc.x[i], t + kWidth / 32, h);
      finish(row, channel + 32 * t, v, gate);
    } else {
      finish(row, channel + 32 * t, v);
    }
  }
}

}  // namespace rocm_sd
