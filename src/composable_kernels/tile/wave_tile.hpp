// The part of a workgroup's output tile that one wave holds in registers, and its product from tiles in LDS.
// Mapping   waves divide the tile in both directions; a wave holds [kAtomsN][kAtomsM] atoms of 16 channels by
//           16 rows as a register tile
// Numerics  16-bit (or 8-bit) operands, float (or 32-bit integer) accumulators, k ascending
#pragma once

#include "composable_kernels/arch/plain_atom.hpp"
#include "composable_kernels/tile/config.hpp"
#include "composable_kernels/tile/register_tile.hpp"

namespace rocm_sd {

// Its rows are channels (rows of the weight), its columns rows of the activation.
template <class Arch, class Cfg>
using Accumulators = RegTile<AtomOf<Arch, typename Cfg::T>, Cfg::kWaveN, Cfg::kWaveM>;

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

// acc += weights x rows^T over kBlockK. weights(i, k), rows(j, k): fragments of channels 16 i and rows 16 j
// of the wave, from depth k on.
template <class Arch, class Cfg, class Weights, class Rows>
ROCM_SD_DEVICE void mma_fragments(Accumulators<Arch, Cfg>& acc, const Weights& weights, const Rows& rows) {
  using Atom = AtomOf<Arch, typename Cfg::T>;
  typename Atom::B b[2];  // the next one is on its way while this one is multiplied
  b[0] = rows(0, 0);
  ROCM_SD_UNROLL
  for (int k = 0; k < Cfg::kBlockK; k += Atom::kDepth) {
    typename Atom::A a[Cfg::kAtomsN];
    ROCM_SD_UNROLL
    for (int i = 0; i < Cfg::kAtomsN; ++i) a[i] = weights(i, k);
    ROCM_SD_UNROLL
    for (int j = 0; j < Cfg::kAtomsM; ++j) {
      const int at = k / Atom::kDepth * Cfg::kAtomsM + j;
      const bool last_row = j + 1 == Cfg::kAtomsM;
      if (!last_row || k + Atom::kDepth < Cfg::kBlockK)
        b[(at + 1) % 2] = last_row ? rows(0, k + Atom::kDepth) : rows(j + 1, k);
      ROCM_SD_UNROLL
      for (int i = 0; i < Cfg::kAtomsN; ++i) Atom::mma(acc.atoms[j][i], a[i], b[at % 2]);
    }
  }
}

// Fragments of a tile [rows][kBlockK] in LDS.
template <class Arch, class Cfg>
struct WeightsInLds {
  const typename Cfg::T* tile;
  ROCM_SD_DEVICE auto operator()(int i, int k) const {
    return AtomOf<Arch, typename Cfg::T>::template load_at<Cfg>(tile + 16 * i * Cfg::kLd, k);
  }
};
template <class Arch, class Cfg>
struct RowsInLds {
  const typename Cfg::T* tile;
  ROCM_SD_DEVICE auto operator()(int j, int k) const {
    return AtomOf<Arch, typename Cfg::T>::template load_b_at<Cfg>(tile + 16 * j * Cfg::kLd, k);
  }
};

// acc += weights x rows^T over kBlockK: tiles [channels][kBlockK] and [rows][kBlockK] in LDS.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void mma_ABt(Accumulators<Arch, Cfg>& acc, const typename Cfg::T* weights,
                            const typename Cfg::T* rows) {
  mma_fragments<Arch, Cfg>(acc, WeightsInLds<Arch, Cfg>{weights}, RowsInLds<Arch, Cfg>{rows});
}

}  // namespace rocm_sd
