// The output of a product: a wave's accumulators pass through LDS, 16 rows at a time, so that each lane gets
// 8 consecutive channels of one row in float, whatever the matrix unit's layout.
#pragma once

#include <type_traits>

#include "composable_kernels/arch/policies.hpp"
#include "composable_kernels/tile/channels.hpp"
#include "composable_kernels/tile/wave_tile.hpp"

namespace rocm_sd {

// What a finish that reads nothing keeps between its two calls.
struct NothingEarly {};

// How 16 rows of a wave's output lie in LDS: kSections (values, gates) of kWidth channels in each row.
// Arch::kStagesHalves: the first four channels that a lane of Atom holds of each piece of 8 lie in the
// section's first half, the others in its second, and rows are 4 words modulo 8 apart. Then eight lanes that
// write or read 16 bytes each, as LDS serves them, use every bank once (rows of 10 pieces: now and then
// twice).
template <class Arch, class Atom, int kWidth, int kSections>
struct StagedRows {
  static constexpr bool kHalves = Arch::kStagesHalves;
  static constexpr int kLd = kSections * kWidth + (kHalves ? kHalvesStagePad : kStagePad);
  static constexpr int kPieces = kWidth / 8;
  static_assert(kLd <= kSections * kWidth + kStagePad);

  // The 16 rows of an atom to where its 16 channels from `channel` on lie. kBits: of floats in its elements.
  template <bool kBits>
  static ROCM_SD_DEVICE void write(float* rows, int channel, const typename Atom::C& c) {
    constexpr int kCount = static_cast<int>(sizeof(c.x) / sizeof(c.x[0]));
    const auto value = [&](int i) {
      if constexpr (kBits)
        return __builtin_bit_cast(float, c.x[i]);
      else
        return static_cast<float>(c.x[i]);
    };
    if constexpr (kHalves) {
      ROCM_SD_UNROLL
      for (int i = 0; i < kCount; i += 4)
        store_four(rows + Atom::column(i) * kLd + place(channel + Atom::row(i)),
                   {value(i), value(i + 1), value(i + 2), value(i + 3)});
    } else {
      ROCM_SD_UNROLL
      for (int i = 0; i < kCount; ++i) rows[Atom::column(i) * kLd + channel + Atom::row(i)] = value(i);
    }
  }
  static ROCM_SD_DEVICE void read(Channels& v, const float* row, int section, int piece) {
    if constexpr (kHalves) {
      const float* const from = row + section * kWidth + piece * 4;
      const FourFloats halves[2] = {load_four(from), load_four(from + kWidth / 2)};
      ROCM_SD_UNROLL
      for (int e = 0; e < 8; ++e) v[e] = halves[half(e)].x[in_half(e)];
    } else {
      ROCM_SD_UNROLL
      for (int e = 0; e < 8; ++e) v[e] = row[section * kWidth + piece * 8 + e];
    }
  }
  // Which piece of which row a lane takes: items of the wave, one behind the other.
  static ROCM_SD_DEVICE int item() {
    if constexpr (kHalves)
      return Arch::wide_read_order();
    else
      return Arch::lane();
  }
  // Eight lanes take pieces of several rows, kPieces rows apart: these begin in different banks.
  static constexpr bool kRowsApart = kHalves && (kPieces == 2 || kPieces == 4);
  static ROCM_SD_DEVICE constexpr int row_of(int item) {
    if constexpr (kRowsApart)
      return item / (8 * kPieces) * 8 + item / 8 % kPieces + item % 8 / kPieces * kPieces;
    else
      return item / kPieces;
  }
  static ROCM_SD_DEVICE constexpr int piece_of(int item) { return item % kPieces; }

 private:
  static constexpr int row_step() {
    if constexpr (requires { Atom::kRowStep; })
      return Atom::kRowStep;
    else
      return 1;
  }
  // Of a channel in its row, the first of a lane's four.
  static ROCM_SD_DEVICE int place(int channel) {
    const int in_section = channel % kWidth;
    return channel - in_section + half(in_section % 8) * (kWidth / 2) + in_section / 8 * 4;
  }
  static ROCM_SD_DEVICE constexpr int half(int e) { return row_step() == 2 ? e % 2 : e / 4; }
  static ROCM_SD_DEVICE constexpr int in_half(int e) { return row_step() == 2 ? e / 2 : e % 4; }
};

// Calls finish(row, channel, v, operands) for every row and every 8th channel of the wave's part of the
// workgroup's tile (counted from the tile's first), v being the products of channel .. channel + 7. If gated,
// finish(row, channel, v, gate, operands): of the channels of each wave's part the first half are values and
// the second half their gates; channel counts values only, 0 .. kBlockN / 2. operands = finish.operands(row,
// channel) was asked for before, for several pieces at a time, so that what it loads arrives together. A
// finish without operands() is called without the last argument. kStaged: atoms of 16 channels (values and
// gates) that pass through LDS at once; staged: 16 * (16 * kStaged + kStagePad) floats for each wave of the
// workgroup. kAtoms: of channels there are; fewer than the accumulators have where these were gated
// (gate_values()): then the first kAtoms, of which the elements are the bits of floats.
template <class Arch, class Cfg, bool kGated, int kStaged, int kAtoms = Cfg::kAtomsN, class Finish>
ROCM_SD_DEVICE void finish_waves(const Accumulators<Arch, Cfg>& acc, float* staged, const Finish& finish) {
  using Atom = AtomOf<Arch, typename Cfg::T>;
  constexpr int kParts = kAtoms / kStaged, kValues = kStaged / 2;  // atoms of values, if gated
  constexpr int kWidth = kGated ? 8 * kStaged : 16 * kStaged;
  using Staged = StagedRows<Arch, Atom, kWidth, kGated ? 2 : 1>;
  constexpr int kLd = Staged::kLd;
  constexpr int kTotal = 16 * kWidth / 8, kPieces = (kTotal + Arch::lanes - 1) / Arch::lanes;
  static_assert(kAtoms % kStaged == 0 && (!kGated || kParts == 1 || kStaged % 2 == 0));
  // Pieces whose loads are under way together, in even parts.
  constexpr int kBatches = (kPieces + Arch::kEpilogueLoads - 1) / Arch::kEpilogueLoads,
                kBatch = (kPieces + kBatches - 1) / kBatches;
  constexpr bool kHasOperands = requires { finish.operands(0, 0); };
  const WavePlace<Arch, Cfg> place;
  staged += place.wave * 16 * kLd;  // [16][kLd]
  const int first_channel = kGated ? place.n / 2 : place.n / Cfg::kAtomsN * kAtoms;
  const auto operands_of = [&](int row, int channel) {
    if constexpr (kHasOperands)
      return finish.operands(row, channel);
    else
      return NothingEarly{};
  };
  const auto finish_piece = [&](int item, int tile_row, int channel, const auto& operands) {
    const float* const row = staged + Staged::row_of(item) * kLd;
    Channels v;
    Staged::read(v, row, 0, Staged::piece_of(item));
    if constexpr (kGated) {
      Channels gate;
      Staged::read(gate, row, 1, Staged::piece_of(item));
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
      Staged::template write<kAtoms != Cfg::kAtomsN>(staged, 16 * n, acc.atoms[j][atom]);
    }
  };
  const auto finish_staged = [&](int j, int part) {
    for (int first = 0; first < kPieces; first += kBatch) {
      decltype(operands_of(0, 0)) operands[kBatch];
      const auto row_of = [&](int item) { return place.m + 16 * j + Staged::row_of(item); };
      const auto channel_of = [&](int item) {
        return first_channel + part * kWidth + Staged::piece_of(item) * 8;
      };
      ROCM_SD_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        const int item = Staged::item() + (first + b) * Arch::lanes;
        if (item < kTotal) operands[b] = operands_of(row_of(item), channel_of(item));
      }
      ROCM_SD_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        const int item = Staged::item() + (first + b) * Arch::lanes;
        if (item < kTotal) finish_piece(item, row_of(item), channel_of(item), operands[b]);
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

// A wave's values become what their gates make of them, where they lie (as the bits of floats): every lane
// has its values' gates. What finish.gate() needs of a channel is read once for all rows.
template <class Arch, class Cfg, class Finish>
ROCM_SD_DEVICE void gate_values(Accumulators<Arch, Cfg>& acc, const Finish& finish) {
  using Atom = AtomOf<Arch, typename Cfg::T>;
  constexpr int kValues = Cfg::kAtomsN / 2, kCount = Accumulators<Arch, Cfg>::kElements;
  const WavePlace<Arch, Cfg> place;
  ROCM_SD_UNROLL
  for (int n = 0; n < kValues; ++n) {
    const auto terms =
        finish.template gate_terms<kCount>(place.n / 2 + 16 * n, [](int i) { return Atom::row(i); });
    ROCM_SD_UNROLL
    for (int j = 0; j < Cfg::kAtomsM; ++j) {
      ROCM_SD_UNROLL
      for (int i = 0; i < kCount; ++i) {
        auto& value = acc.atoms[j][n].x[i];
        const float y =
            finish.gate(value, acc.atoms[j][kValues + n].x[i], terms, i, place.m + 16 * j + Atom::column(i));
        value = __builtin_bit_cast(std::remove_reference_t<decltype(value)>, y);
      }
    }
  }
}

// The same for the whole workgroup's tile at once. lds: as in the main loop, which may have just ended.
template <class Arch, class Cfg, bool kGated, class Finish>
ROCM_SD_DEVICE void finish_tile(Accumulators<Arch, Cfg>& acc, char* lds, const Finish& finish) {
  constexpr int kValues = Cfg::kAtomsN / 2;
  const auto staged = reinterpret_cast<float*>(lds);
  if constexpr (kGated && Arch::template kGatesInRegisters<typename Cfg::T> && Cfg::kAtomsN % 2 == 0) {
    gate_values<Arch, Cfg>(acc, finish);
    Arch::barrier();
    constexpr int kStaged = Cfg::kStagedAtoms < kValues ? Cfg::kStagedAtoms : kValues;
    finish_waves<Arch, Cfg, false, kStaged, kValues>(acc, staged, finish.stored());
  } else {
    Arch::barrier();
    finish_waves<Arch, Cfg, kGated, Cfg::kStagedAtoms>(acc, staged, finish);
  }
}

}  // namespace rocm_sd
