// The output of a product: a wave's accumulators pass through LDS, 16 rows at a time, so that each lane gets
// 8 consecutive channels of one row in float, whatever the matrix unit's layout.
#pragma once

#include "composable_kernels/tile/main_loop.hpp"

namespace rocm_sd {

// What a finish that reads nothing keeps between its two calls.
struct NothingEarly {};

// Calls finish(row, channel, v, early) for every row and every 8th channel of the workgroup's tile (counted
// from the tile's first), v being the products of channel .. channel + 7. If gated, finish(row, channel, v,
// gate, early): of the channels of each wave's part the first half are values and the second half their
// gates; channel counts values only, 0 .. kBlockN / 2. early = finish.early(row, channel) was asked for
// before, for several pieces at a time, so that what it loads arrives together. A finish without early() is
// called without the last argument. lds: as in the main loop, which may have just ended.
template <class Arch, class Cfg, bool kGated, class Finish>
ROCM_SD_DEVICE void finish_tile(const Accumulators<Arch, Cfg>& acc, char* lds, const Finish& finish) {
  using Atom = AtomOf<Arch, typename Cfg::T>;
  constexpr int kLd = Cfg::kWaveN + kStagePad,
                kCount = static_cast<int>(sizeof(acc.c[0][0].x) / sizeof(float));
  constexpr int kWidth = kGated ? Cfg::kWaveN / 2 : Cfg::kWaveN;  // channels that the wave writes
  constexpr int kTotal = 16 * kWidth / 8, kPieces = (kTotal + Arch::lanes - 1) / Arch::lanes;
  // Pieces whose loads are under way together, in even parts. One on AMD: copies of the tail cost code, and
  // registers that the accumulators hold.
  constexpr int kMost = Arch::kAsyncCopies ? 5 : 1;
  constexpr int kBatches = (kPieces + kMost - 1) / kMost, kBatch = (kPieces + kBatches - 1) / kBatches;
  constexpr bool kEarly = requires { finish.early(0, 0); };
  const WavePlace<Arch, Cfg> place;
  float* const staged = reinterpret_cast<float*>(lds) + place.wave * 16 * kLd;  // [16][kLd]
  const int first_channel = kGated ? place.n / 2 : place.n;
  const auto early_of = [&](int row, int channel) {
    if constexpr (kEarly)
      return finish.early(row, channel);
    else
      return NothingEarly{};
  };
  const auto finish_piece = [&](int at, int j, const auto& early) {
    const int row = at / (kWidth / 8), channel = at % (kWidth / 8) * 8, tile_row = place.m + 16 * j + row;
    const float* from = staged + row * kLd + channel;
    float v[8];
    ROCM_SD_UNROLL
    for (int e = 0; e < 8; ++e) v[e] = from[e];
    if constexpr (kGated) {
      float gate[8];
      ROCM_SD_UNROLL
      for (int e = 0; e < 8; ++e) gate[e] = from[kWidth + e];
      if constexpr (kEarly)
        finish(tile_row, first_channel + channel, v, gate, early);
      else
        finish(tile_row, first_channel + channel, v, gate);
    } else {
      if constexpr (kEarly)
        finish(tile_row, first_channel + channel, v, early);
      else
        finish(tile_row, first_channel + channel, v);
    }
  };
  Arch::barrier();
  ROCM_SD_UNROLL
  for (int j = 0; j < Cfg::kAtomsM; ++j) {
    ROCM_SD_UNROLL
    for (int n = 0; n < Cfg::kAtomsN; ++n) {
      ROCM_SD_UNROLL
      for (int i = 0; i < kCount; ++i)
        staged[Atom::column(i) * kLd + 16 * n + Atom::row(i)] = acc.c[n][j].x[i];
    }
    Arch::wave_barrier();
    for (int first = 0; first < kPieces; first += kBatch) {
      decltype(early_of(0, 0)) early[kBatch];
      ROCM_SD_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        const int at = Arch::lane() + (first + b) * Arch::lanes;
        if (at < kTotal)
          early[b] = early_of(place.m + 16 * j + at / (kWidth / 8), first_channel + at % (kWidth / 8) * 8);
      }
      ROCM_SD_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        const int at = Arch::lane() + (first + b) * Arch::lanes;
        if (at < kTotal) finish_piece(at, j, early[b]);
      }
    }
    Arch::wave_barrier();
  }
}

}  // namespace rocm_sd
