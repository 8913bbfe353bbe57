// An operand that goes around LDS: every lane loads its parts of the fragments from global memory, some steps
// ahead (Cfg::kShape.ahead). For an operand of which the waves share little: what passes through
// LDS is then read there once, and the writes are in vain.
// Traffic   16 bytes a lane and load; 64 bytes of each of 16 rows by a wave's load
// Limits    atoms whose lanes read 16 bytes of a row at once (Arch::kDeepAtoms), of 16-bit elements
#pragma once

#include "composable_kernels/chunk16.hpp"
#include "composable_kernels/tile/wave_tile.hpp"

namespace rocm_sd {

// The wave's rows of a tile [..][Cfg::kBlockK] of a source: channels (kWeights) or rows of its part of the
// output.
template <class Arch, class Cfg, bool kWeights, class Source>
class DirectFragments {
  using Atom = AtomOf<Arch, typename Cfg::T>;
  static constexpr int kAtoms = kWeights ? Cfg::kAtomsN : Cfg::kAtomsM;
  static constexpr int kDepths = Cfg::kBlockK / Atom::kDepth;
  static constexpr int kCount = kAtoms * kDepths;  // of a lane, 16 bytes each
  static constexpr int kSets = Cfg::kShape.ahead;
  // Fragments stay where they were loaded to, and a set is loaded anew after its products: a copy of
  // registers would await what is on its way to them.
  static constexpr bool kInPlace = kSets > 1;
  static_assert(kDepths * Atom::kDepth == Cfg::kBlockK && kCount <= 32);

 public:
  ROCM_SD_DEVICE explicit DirectFragments(const Source& source) : source_(source) {
    const WavePlace<Arch, Cfg> place;
    const int first = kWeights ? place.n : place.m;
    ROCM_SD_UNROLL
    for (int a = 0; a < kAtoms; ++a) rows_[a] = source.row(first + 16 * a + Arch::lane() % 16);
  }

  // k: of the tile's first column. set: of registers, known to the compiler.
  ROCM_SD_DEVICE void load(int k, int set) {
    if constexpr (Source::kOneBase) {  // loads put zeros in place by themselves
      const auto from = Arch::buffer(source_.base(k));
      for_each(k, set, [&](Chunk16& to, const auto& row, const auto& column, int) {
        to = Arch::template load_buffer<Chunk16>(from, source_.offset(row, column, Arch::kNowhere));
      });
    } else {
      valid_[set] = 0;
      for_each(k, set, [&](Chunk16& to, const auto& row, const auto& column, int bit) {
        const auto chunk = source_.near_chunk(row, column);
        to = *reinterpret_cast<const Chunk16*>(chunk.data);
        valid_[set] |= static_cast<uint32_t>(chunk.valid) << bit;
      });
    }
  }
  // What load() fetched into the set becomes what fragment() gives.
  ROCM_SD_DEVICE void take(int set) {
    if constexpr (!kInPlace) {
      ROCM_SD_UNROLL
      for (int i = 0; i < kCount; ++i) now_[i] = next_[set][i];
    }
    if constexpr (!Source::kOneBase) {
      ROCM_SD_UNROLL
      for (int i = 0; i < kCount; ++i)
        if (!(valid_[set] >> i & 1)) (kInPlace ? next_[set] : now_)[i] = Chunk16{};
    }
  }
  // Of rows 16 a and on, columns k and on; of the set that was taken.
  ROCM_SD_DEVICE typename Atom::A fragment(int a, int k, int set) const {
    return Atom::from_chunk((kInPlace ? next_[set] : now_)[k / Atom::kDepth * kAtoms + a]);
  }

 private:
  // f(chunk, row, column, number) for every 16 bytes that the lane loads.
  template <class F>
  ROCM_SD_DEVICE void for_each(int k, int set, const F& f) {
    ROCM_SD_UNROLL
    for (int d = 0; d < kDepths; ++d) {
      const typename Source::Column column = source_.column(k, d * Atom::kDepth + Atom::lane_depth());
      ROCM_SD_UNROLL
      for (int a = 0; a < kAtoms; ++a) f(next_[set][d * kAtoms + a], rows_[a], column, d * kAtoms + a);
    }
  }

  Source source_;
  typename Source::Row rows_[kAtoms];
  Chunk16 next_[kSets][kCount], now_[kInPlace ? 1 : kCount];
  uint32_t valid_[kSets] = {};  // bit i: of next_[set][i]
};

}  // namespace rocm_sd
