// The output of a product: a wave's accumulators pass through LDS, 16 rows at a time, so that each lane gets
// 8 consecutive channels of one row in float, whatever the matrix unit's layout.
#pragma once

#include "composable_kernels/tile/main_loop.hpp"

namespace rocm_sd {

template <class Finish>
concept LoadsFirst =
    requires(const Finish& finish, typename Finish::Terms& terms) { finish.load(0, 0, terms); };

// Calls finish(row, channel, v) for every row and every 8th channel of the workgroup's tile (counted from
// the tile's first), v being the products of channel .. channel + 7. If gated, finish(row, channel, v, gate):
// of the channels of each wave's part the first half are values and the second half their gates; channel
// counts values only, 0 .. kBlockN / 2. A finish that has Terms, load(row, channel, terms) and store(row,
// channel, v, terms) instead loads what it needs of several pieces before it stores the first. lds: as in the
// main loop, which may have just ended.
template <class Arch, class Cfg, bool kGated, class Finish>
ROCM_SD_DEVICE void finish_tile(const Accumulators<Arch, Cfg>& acc, char* lds, const Finish& finish) {
  using Atom = AtomOf<Arch, typename Cfg::T>;
  constexpr int kLd = Cfg::kWaveN + kStagePad,
                kCount = static_cast<int>(sizeof(acc.c[0][0].x) / sizeof(float));
  constexpr int kWidth = kGated ? Cfg::kWaveN / 2 : Cfg::kWaveN;  // channels that the wave writes
  constexpr bool kTwoSteps = LoadsFirst<Finish>;
  const WavePlace<Arch, Cfg> place;
  float* const staged = reinterpret_cast<float*>(lds) + place.wave * 16 * kLd;  // [16][kLd]
  Arch::barrier();
  ROCM_SD_UNROLL
  for (int j = 0; j < Cfg::kAtomsM; ++j) {
    ROCM_SD_UNROLL
    for (int n = 0; n < Cfg::kAtomsN; ++n) ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i) staged[Atom::column(i) * kLd + 16 * n + Atom::row(i)] = acc.c[n][j].x[i];
    Arch::wave_barrier();
    if constexpr (!kGated && kTwoSteps) {
      constexpr int kTotal = 16 * kWidth / 8, kBatch = Arch::lanes == 1 ? 1 : 4;
      for (int first = Arch::lane(); first < kTotal; first += kBatch * Arch::lanes) {
        typename Finish::Terms terms[kBatch];
        ROCM_SD_UNROLL
        for (int b = 0; b < kBatch; ++b) {
          const int at = first + b * Arch::lanes, row = at / (kWidth / 8), channel = at % (kWidth / 8) * 8;
          if (at < kTotal) finish.load(place.m + 16 * j + row, place.n + channel, terms[b]);
        }
        ROCM_SD_UNROLL
        for (int b = 0; b < kBatch; ++b) {
          const int at = first + b * Arch::lanes, row = at / (kWidth / 8), channel = at % (kWidth / 8) * 8;
          if (at >= kTotal) continue;
          const float* from = staged + row * kLd + channel;
          float v[8];
          ROCM_SD_UNROLL
          for (int e = 0; e < 8; ++e) v[e] = from[e];
          finish.store(place.m + 16 * j + row, place.n + channel, v, terms[b]);
        }
      }
    } else {
      for (int at = Arch::lane(); at < 16 * kWidth / 8; at += Arch::lanes) {
        const int row = at / (kWidth / 8), channel = at % (kWidth / 8) * 8;
        const float* from = staged + row * kLd + channel;
        float v[8], gate[8];
        ROCM_SD_UNROLL
        for (int e = 0; e < 8; ++e) v[e] = from[e];
        const int tile_row = place.m + 16 * j + row;
        if constexpr (kGated) {
          ROCM_SD_UNROLL
          for (int e = 0; e < 8; ++e) gate[e] = from[kWidth + e];
          finish(tile_row, place.n / 2 + channel, v, gate);
        } else {
          finish(tile_row, place.n + channel, v);
        }
      }
    }
    Arch::wave_barrier();
  }
}

}  // namespace rocm_sd
