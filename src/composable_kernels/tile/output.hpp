// The output of a product: a wave's accumulators pass through LDS, 16 rows at a time, so that each lane gets
// 8 consecutive channels of one row in float, whatever the matrix unit's layout.
#pragma once

#include "composable_kernels/arch/policies.hpp"
#include "composable_kernels/tile/channels.hpp"
#include "composable_kernels/tile/wave_tile.hpp"

namespace rocm_sd {

// What a finish that reads nothing keeps between its two calls.
struct NothingEarly {};

// Calls finish(row, channel, v, operands) for every row and every 8th channel of the wave's part of the
// workgroup's tile (counted from the tile's first), v being the products of channel .. channel + 7. If gated,
// finish(row, channel, v, gate, operands): of the channels of each wave's part the first half are values and
// the second half their gates; channel counts values only, 0 .. kBlockN / 2. operands = finish.operands(row,
// channel) was asked for before, for several pieces at a time, so that what it loads arrives together. A
// finish without operands() is called without the last argument. kStaged: atoms of 16 channels (values and
// gates) that pass through LDS at once; staged: 16 * (16 * kStaged + kStagePad) floats for each wave of the
// workgroup.
template <class Arch, class Cfg, bool kGated, int kStaged, class Finish>
ROCM_SD_DEVICE void finish_waves(const Accumulators<Arch, Cfg>& acc, float* staged, const Finish& finish) {
  using Atom = AtomOf<Arch, typename Cfg::T>;
  constexpr int kParts = Cfg::kAtomsN / kStaged, kValues = kStaged / 2;  // atoms of values, if gated
  constexpr int kWidth = kGated ? 8 * kStaged : 16 * kStaged, kLd = 16 * kStaged + kStagePad;
  constexpr int kCount = Accumulators<Arch, Cfg>::kElements;
  constexpr int kTotal = 16 * kWidth / 8, kPieces = (kTotal + Arch::lanes - 1) / Arch::lanes;
  static_assert(Cfg::kAtomsN % kStaged == 0 && (!kGated || kParts == 1 || kStaged % 2 == 0));
  // Pieces whose loads are under way together, in even parts.
  constexpr int kBatches = (kPieces + Arch::kEpilogueLoads - 1) / Arch::kEpilogueLoads,
                kBatch = (kPieces + kBatches - 1) / kBatches;
  constexpr bool kHasOperands = requires { finish.operands(0, 0); };
  const WavePlace<Arch, Cfg> place;
  staged += place.wave * 16 * kLd;  // [16][kLd]
  const int first_channel = kGated ? place.n / 2 : place.n;
  const auto operands_of = [&](int row, int channel) {
    if constexpr (kHasOperands)
      return finish.operands(row, channel);
    else
      return NothingEarly{};
  };
  const auto finish_piece = [&](int at, int tile_row, int channel, const auto& operands) {
    const float* from = staged + at / (kWidth / 8) * kLd + at % (kWidth / 8) * 8;
    Channels v;
    ROCM_SD_UNROLL
    for (int e = 0; e < 8; ++e) v[e] = from[e];
    if constexpr (kGated) {
      Channels gate;
      ROCM_SD_UNROLL
      for (int e = 0; e < 8; ++e) gate[e] = from[kWidth + e];
      if constexpr (kHasOperands)
        finish(tile_row, channel, v, gate, operands);
      else
        finish(tile_row, channel, v, gate);
    } else {
      if constexpr (kHasOperands)
        finish(tile_row, channel, v, operands);
      else
        finish(tile_row, channel, v);
    }
  };
  const auto stage = [&](int j, int part) {
    ROCM_SD_UNROLL
    for (int n = 0; n < kStaged; ++n) {
      const int atom = !kGated || kParts == 1
                           ? part * kStaged + n
                           : part * kValues + n + (n < kValues ? 0 : Cfg::kAtomsN / 2 - kValues);
      ROCM_SD_UNROLL
      for (int i = 0; i < kCount; ++i)
        staged[Atom::column(i) * kLd + 16 * n + Atom::row(i)] = acc.atoms[j][atom].x[i];
    }
  };
  const auto finish_staged = [&](int j, int part) {
    for (int first = 0; first < kPieces; first += kBatch) {
      decltype(operands_of(0, 0)) operands[kBatch];
      const auto row_of = [&](int at) { return place.m + 16 * j + at / (kWidth / 8); };
      const auto channel_of = [&](int at) { return first_channel + part * kWidth + at % (kWidth / 8) * 8; };
      ROCM_SD_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        const int at = Arch::lane() + (first + b) * Arch::lanes;
        if (at < kTotal) operands[b] = operands_of(row_of(at), channel_of(at));
      }
      ROCM_SD_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        const int at = Arch::lane() + (first + b) * Arch::lanes;
        if (at < kTotal) finish_piece(at, row_of(at), channel_of(at), operands[b]);
      }
    }
  };
  if constexpr (Arch::kEpilogueCode == EpilogueCode::kOnce) {
    ROCM_SD_ROLLED
    for (int pass = 0; pass < Cfg::kAtomsM * kParts; ++pass) {
      ROCM_SD_UNROLL
      for (int chosen = 0; chosen < Cfg::kAtomsM * kParts; ++chosen)
        if (chosen == pass) stage(chosen / kParts, chosen % kParts);
      Arch::wave_barrier();
      finish_staged(pass / kParts, pass % kParts);
      Arch::wave_barrier();
    }
  } else {
    ROCM_SD_UNROLL
    for (int pass = 0; pass < Cfg::kAtomsM * kParts; ++pass) {
      stage(pass / kParts, pass % kParts);
      Arch::wave_barrier();
      finish_staged(pass / kParts, pass % kParts);
      Arch::wave_barrier();
    }
  }
}

// The same for the whole workgroup's tile at once. lds: as in the main loop, which may have just ended.
template <class Arch, class Cfg, bool kGated, class Finish>
ROCM_SD_DEVICE void finish_tile(const Accumulators<Arch, Cfg>& acc, char* lds, const Finish& finish) {
  Arch::barrier();
  finish_waves<Arch, Cfg, kGated, Cfg::kAtomsN>(acc, reinterpret_cast<float*>(lds), finish);
}

}  // namespace rocm_sd
