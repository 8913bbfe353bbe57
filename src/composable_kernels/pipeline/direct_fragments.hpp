// An operand that goes around LDS: every lane loads its parts of the fragments from global memory, a step
// ahead. For an operand of which the waves share little (each wave has rows of its own): what passes through
// LDS is then read there once, and the writes are in vain.
// Traffic   16 bytes a lane and load; a fragment's 16 rows by the 16 bytes of neighbouring lanes
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
  static constexpr int kDepths = Cfg::kBlockK / Atom::kDepth, kPieces = Atom::kPieces;
  static_assert(kDepths * Atom::kDepth == Cfg::kBlockK && kAtoms * kDepths * kPieces <= 32);

 public:
  ROCM_SD_DEVICE explicit DirectFragments(const Source& source) : source_(source) {
    const WavePlace<Arch, Cfg> place;
    const int first = kWeights ? place.n : place.m;
    ROCM_SD_UNROLL
    for (int a = 0; a < kAtoms; ++a) rows_[a] = source.row(first + 16 * a + Arch::lane() % 16);
  }

  // k: of the tile's first column.
  ROCM_SD_DEVICE void load(int k) {
    const bool buffered = source_.one_base();
    valid_ = ~0u;
    uint32_t outside = 0;
    ROCM_SD_UNROLL
    for (int d = 0; d < kDepths; ++d) {
      ROCM_SD_UNROLL
      for (int p = 0; p < kPieces; ++p) {
        const typename Source::Column column =
            source_.column(k, d * Atom::kDepth + Atom::piece_column(p));
        ROCM_SD_UNROLL
        for (int a = 0; a < kAtoms; ++a) {
          Chunk16& piece = next_[d][a][p];
          if (buffered) {
            piece = Arch::template load_buffer<Chunk16>(Arch::buffer(source_.base(k)),
                                                        source_.offset(rows_[a], column, Arch::kNowhere));
          } else {
            const auto chunk = source_.near_chunk(rows_[a], column);
            piece = *reinterpret_cast<const Chunk16*>(chunk.data);
            outside |= static_cast<uint32_t>(!chunk.valid) << ((d * kAtoms + a) * kPieces + p);
          }
        }
      }
    }
    valid_ = ~outside;
  }
  // What load() fetched becomes what fragment() gives.
  ROCM_SD_DEVICE void take() {
    ROCM_SD_UNROLL
    for (int d = 0; d < kDepths; ++d) {
      ROCM_SD_UNROLL
      for (int a = 0; a < kAtoms; ++a) {
        ROCM_SD_UNROLL
        for (int p = 0; p < kPieces; ++p)
          now_[d][a][p] = valid_ >> ((d * kAtoms + a) * kPieces + p) & 1 ? next_[d][a][p] : Chunk16{};
      }
    }
  }
  // Of rows 16 a and on, columns k and on.
  ROCM_SD_DEVICE typename Atom::A fragment(int a, int k) const {
    return Atom::from_pieces(now_[k / Atom::kDepth][a]);
  }

 private:
  Source source_;
  typename Source::Row rows_[kAtoms];
  Chunk16 next_[kDepths][kAtoms][kPieces], now_[kDepths][kAtoms][kPieces];
  uint32_t valid_ = ~0u;  // bit ((d * kAtoms + a) * kPieces + p); where loads do not put zeros in place
};

}  // namespace rocm_sd
