// Flash attention for head_dim up to 160: every wave owns its queries, the workgroup shares tiles of keys.
// Problem   y = softmax(scale q k^T + mask) v for each head; 16-bit in and out
// Mapping   grid (query tiles, batch * heads, splits of the keys). A wave holds Q of 16 kQueryAtoms
//           queries in registers (in LDS where those are short) and computes S^T = K Q^T, so that a
//           query's scores lie in few lanes, and O^T = V^T P^T with P^T made from S^T inside the wave
// Traffic   q and y once, k and v once per query tile (from L2) through kStages buffers in LDS
// Numerics  scores, softmax and sums in float; weights in 16 bits for the second product: rounded, on AMD cut
//           off (Arch::kCutsWeights). They are summed as they are multiplied where head_dim is padded (by
//           that product: a row of ones) and on AMD, so that what they lost cancels; rows by tiles in order,
//           splits merged in order
// Limits    head_dim % 8 == 0; rows at multiples of 16 bytes; scale > 0 unless Cfg::kGeneral
// Method: Dao, "FlashAttention-2", 2023, algorithm 1, whose tiles are transposed here: its rows of S, P and O
// are columns.
#pragma once

#include <type_traits>

#include "composable_kernels/fused/flash_softmax.hpp"
#include "composable_kernels/fused/flash_work.hpp"
#include "composable_kernels/pipeline/policy.hpp"
#include "composable_kernels/tile/mma.hpp"

namespace rocm_sd {

// Cfg: T; kDim; kQueryAtoms (of a wave); kKeys (of a tile); kWaves; kStages; kGeneral (mask, causal, any
// scale); kTransposed (values reach LDS transposed, else they are read transposed); kQueriesInLds; Pipeline.
template <class Architecture, class Cfg>
struct FlashShape {
  using Arch = Architecture;
  using T = typename Cfg::T;
  static constexpr int kThreads = Cfg::kWaves * Arch::lanes, kStages = Cfg::kStages, kWidth = Cfg::kDim;
  static constexpr int kPadded = (Cfg::kDim + 15) / 16 * 16, kPad = flash_row_pad(Arch::lanes);
  using Rows = RowMajor<kPadded + kPad>;
  using KeyTile = LdsTile<T, Cfg::kKeys, kPadded, Rows>;
  using Columns = ColumnMajor<Cfg::kKeys + kPad, flash_column_skip(Cfg::kKeys, kPad)>;
  using ValueTile = LdsTile<T, Cfg::kKeys, kPadded, std::conditional_t<Cfg::kTransposed, Columns, Rows>>;
};

template <class Arch, class Cfg>
struct FlashAttention : FlashWork<typename Cfg::T, Cfg::kDim, Cfg::kWaves * Cfg::kQueryAtoms * 16> {
  using T = typename Cfg::T;
  using M = Atom<Arch, T>;
  using Shape = FlashShape<Arch, Cfg>;
  using Pipeline = typename Cfg::Pipeline;
  using Tiles = typename Pipeline::template Pairs<Shape>;
  static constexpr int kDim = Cfg::kDim, kPadded = Shape::kPadded, kKeys = Cfg::kKeys;
  static constexpr int kWaveQueries = Cfg::kQueryAtoms * 16, kQueries = Cfg::kWaves * kWaveQueries;
  static constexpr int kThreads = Shape::kThreads;
  static constexpr bool kOnes = kPadded > kDim;  // spare rows of V^T: the first is ones and sums the weights
  using QueryTile = LdsTile<T, kQueries, kPadded, typename Shape::Rows>;  // Q on the way in, O on the way out
  using WaveTile = LdsTile<T, kWaveQueries, kPadded, typename Shape::Rows>;
  static constexpr int kStaged = Tiles::kLdsElements, kRowsSize = QueryTile::kElements;
  static constexpr int kLdsElements = flash_lds_elements(
      {kDim, kQueries, kKeys, Cfg::kStages, Cfg::kQueriesInLds, Cfg::kTransposed, Shape::kPad});
  static_assert(kStaged + (Cfg::kQueriesInLds ? kRowsSize : 0) <= kLdsElements && kRowsSize <= kLdsElements);
  using Work = FlashWork<T, kDim, kQueries>;
  using Work::p, Work::first_key, Work::last_key;

  T* lds;
  int wave, wave_query;  // wave_query: its first, in the image; computed once, for all lanes
  int finished_keys;     // before it a tile's scores need nothing but the scale
  std::conditional_t<Cfg::kQueriesInLds, WaveTile, ColOperand<M, kWaveQueries, kPadded>> q;
  RegTile<M, kPadded, kWaveQueries> o;
  OnlineSoftmax<Arch, M, kWaveQueries> softmax;

  ROCM_SD_DEVICE FlashAttention(const FlashParams<T>& params, T* memory, FlashGroup at)
      : Work(params, at), lds(memory) {
    wave = Arch::uniform(Arch::thread() / Arch::lanes);
    wave_query = Arch::uniform(this->first_query + wave * kWaveQueries);
    if constexpr (Cfg::kGeneral) this->leave_out_the_future();
    finished_keys = Cfg::kGeneral ? Work::finished_keys(wave_query) : last_key;
  }
  ROCM_SD_DEVICE WaveTile of_wave(const QueryTile& tile) const {
    return rows_from<kWaveQueries>(tile, wave * kWaveQueries);
  }

  ROCM_SD_DEVICE void load_queries() {
    const QueryTile tile{lds + (Cfg::kQueriesInLds ? kStaged : 0)};
    typename Pipeline::template Copy<Arch, kThreads, kDim, QueryTile> copy;
    copy.issue(this->queries(), tile);
    fill_columns<Arch, kThreads, kDim>(tile, [](int) { return 0.0f; });
    copy.land(tile);
    Pipeline::template commit<Arch>();
    Pipeline::template wait<Arch>();
    Arch::barrier();
    if constexpr (Cfg::kQueriesInLds) {
      q = of_wave(tile);
    } else {
      load(q, of_wave(tile));
      Arch::barrier();
    }
  }

  // The columns beyond kDim, which no copy writes: of K zero; of V one, then zero.
  ROCM_SD_DEVICE void fill_spare_columns(const Tiles& tiles) const {
    if constexpr (kOnes)
      for (int stage = 0; stage < Cfg::kStages; ++stage) {
        fill_columns<Arch, kThreads, kDim>(tiles.key_tile(stage), [](int) { return 0.0f; });
        fill_columns<Arch, kThreads, kDim>(tiles.value_tile(stage),
                                           [](int d) { return d == kDim ? 1.0f : 0.0f; });
      }
  }

  // The scores of a tile, in units of which log2_scale makes binary logarithms. Most tiles lie before
  // finished_keys; of others, keys are hidden that a query does not see, or all scores are scaled and masked.
  ROCM_SD_DEVICE void finish(RegTile<M, kKeys, kWaveQueries>& s, int first) const {
    if (first + kKeys <= finished_keys) return;
    if constexpr (Cfg::kGeneral) {
      if (!this->scales_late()) this->mask_scores(s, first, wave_query);
      this->hide_scores(s, first, wave_query);
    } else {
      for_each(s, [&](float& x, int key, int) {
        if (first + key >= last_key) x = softmax.kHidden;
      });
    }
  }

  ROCM_SD_DEVICE void run_keys(Tiles& tiles) {
    if (first_key >= last_key) return;
    const float log2_scale = Cfg::kGeneral && !this->scales_late() ? 1.0f : p.scale;
    tiles.start(first_key);
    for (int first = first_key; first < last_key; first += kKeys) {
      RegTile<M, kKeys, kWaveQueries> s;
      ColVec<M, kWaveQueries> most, factor;
      tiles.begin(first);
      zero(s);
      mma_ABt<Arch>(s, stream(tiles.keys()), q);  // S^T = K Q^T (line 8)
      tiles.keys_read();
      finish(s, first);
      lane_max<Arch>(most, s);
      if constexpr (!Arch::kFoldsLate) max_lanes(most);
      if (Arch::any(softmax.outgrown(most, log2_scale))) {
        if constexpr (Arch::kFoldsLate) max_lanes(most);
        softmax.rebase(factor, most, log2_scale);  // m and l (line 9)
        scale(o, factor);                          // O^T = O^T diag(2^(old m - m)) (line 10)
      }
      // P^T = 2^(S^T - m) (line 9), then O^T += V^T P^T (line 10)
      softmax.template exponentiate<!kOnes && !Arch::kCutsWeights>(s, log2_scale);
      mma_AtB<Arch, !kOnes && Arch::kCutsWeights>(o, stream(tiles.values()), s, softmax.total);
      tiles.values_read();
    }
  }

  // The weights' total per query, in every lane of the column.
  ROCM_SD_DEVICE ColVec<M, kWaveQueries> totals() const {
    ColVec<M, kWaveQueries> total = softmax.total;
    if constexpr (kOnes)
      select_row<kDim>(total, o);
    else
      sum_lanes(total);
    return total;
  }

  ROCM_SD_DEVICE void write_output() {
    const QueryTile tile{lds};
    ColVec<M, kWaveQueries> share = totals();
    Arch::barrier();  // the last tile has been read
    invert<Arch>(share);
    scale(o, share);
    store_columns(of_wave(tile), o);
    Arch::barrier();
    store_rows<Arch, kThreads, kDim>(this->output(), tile);
  }

  ROCM_SD_DEVICE void run() {
    Tiles tiles(lds, this->keys(), this->values());
    softmax.clear();
    zero(o);
    load_queries();
    fill_spare_columns(tiles);
    run_keys(tiles);
    if (p.splits > 1) {
      ColVec<M, kWaveQueries> total = totals();
      this->store_partial(o, 0, wave_query, softmax.base, total);
    } else {
      write_output();
    }
  }
};

}  // namespace rocm_sd
