// Flash attention for large head dimensions (the VAE's 512): the waves of a workgroup share the scores of its
// queries and own slices of the channels of the output.
// Problem   y = softmax(scale q k^T + mask) v for each head; 16-bit in and out
// Mapping   grid (query tiles, batch * heads, splits of the keys). kWavesQ x kWavesK waves compute
//           S^T = K Q^T by rectangles, agree on the maxima and put P into LDS; then each wave multiplies
//           its kDim / waves rows of V^T by all of P^T
// Traffic   q and y once, k and v once per query tile (from L2), through kStages stages of LDS that hold
//           in turn [kKeys][kChunkDim] of K and [kChunkKeys][kDim] of V; Q stays in LDS or, where one wave
//           has all queries of its keys' scores, in registers
// Numerics  as FlashAttention; the weights are summed before they are rounded
// Limits    kDim % (16 waves) == 0; rows at multiples of 16 bytes
#pragma once

#include <type_traits>

#include "composable_kernels/fused/flash_softmax.hpp"
#include "composable_kernels/fused/flash_work.hpp"
#include "composable_kernels/pipeline/policy.hpp"
#include "composable_kernels/tile/mma.hpp"

namespace rocm_sd {

// Cfg: T; kDim; kQueries, kKeys (of the workgroup's tile); kWavesQ, kWavesK; kChunkDim, kChunkKeys; kStages;
// kTransposed (values reach LDS transposed); kQueriesInLds; Pipeline.
template <class Architecture, class Cfg>
struct FlashLargeDShape {
  using Arch = Architecture;
  using T = typename Cfg::T;
  static constexpr int kWaves = Cfg::kWavesQ * Cfg::kWavesK, kThreads = kWaves * Arch::lanes;
  static constexpr int kStages = Cfg::kStages, kPad = flash_row_pad(Arch::lanes);
  using KeyChunk = LdsTile<T, Cfg::kKeys, Cfg::kChunkDim, RowMajor<Cfg::kChunkDim + kPad>>;
  using Columns = ColumnMajor<Cfg::kChunkKeys + kPad, flash_column_skip(Cfg::kChunkKeys, kPad)>;
  using ValueChunk = LdsTile<T, Cfg::kChunkKeys, Cfg::kDim,
                             std::conditional_t<Cfg::kTransposed, Columns, RowMajor<Cfg::kDim + kPad>>>;
};

template <class Arch, class Cfg>
struct FlashLargeD : FlashWork<typename Cfg::T, Cfg::kDim, Cfg::kQueries> {
  using T = typename Cfg::T;
  using M = Atom<Arch, T>;
  using Shape = FlashLargeDShape<Arch, Cfg>;
  using Pipeline = typename Cfg::Pipeline;
  using Chunks = typename Pipeline::template Chunks<Shape>;
  static constexpr int kDim = Cfg::kDim, kQueries = Cfg::kQueries, kKeys = Cfg::kKeys;
  static constexpr int kWavesK = Cfg::kWavesK, kWaves = Shape::kWaves, kThreads = Shape::kThreads;
  static constexpr int kWaveQueries = kQueries / Cfg::kWavesQ, kWaveKeys = kKeys / kWavesK;  // of its scores
  static constexpr int kWaveDim = kDim / kWaves;                                             // of its output
  static_assert(kWaveQueries * Cfg::kWavesQ == kQueries && kWaveKeys * kWavesK == kKeys);
  static_assert(kWaveDim * kWaves == kDim);

  // Queries in LDS, or in registers: their atoms, and those of the output, then pass through LDS one by one.
  static constexpr bool kInLds = Cfg::kQueriesInLds;
  static_assert(kInLds || Cfg::kWavesQ == 1);
  using QueryTile = LdsTile<T, kInLds ? kQueries : 16, kDim, RowMajor<kDim + Shape::kPad>>;
  using WeightTile = LdsTile<T, kQueries, kKeys, RowMajor<kKeys + Shape::kPad>>;
  static constexpr int kWeights = kInLds ? QueryTile::kElements : 0, kRing = kWeights + WeightTile::kElements;
  static constexpr int kFolds = kRing + Chunks::kLdsElements;     // floats [kWavesK][kQueries]
  static constexpr int kBases = kFolds + 2 * kWavesK * kQueries;  // floats [2][kQueries], by turns
  static constexpr int kLdsElements =
      flash_large_d_lds_elements({kDim, kQueries, kKeys, Cfg::kChunkDim, Cfg::kChunkKeys, Cfg::kStages,
                                  kWavesK, kInLds, Cfg::kTransposed, Shape::kPad});
  static_assert(kBases + 4 * kQueries <= kLdsElements && QueryTile::kElements <= kFolds);
  using Scores = RegTile<M, kWaveKeys, kWaveQueries>;
  using WaveVec = ColVec<M, kWaveQueries>;
  using Vec = ColVec<M, kQueries>;
  using Work = FlashWork<T, kDim, kQueries>;
  using Work::p, Work::first_key, Work::last_key;

  T* lds;
  int wave;
  struct Nothing {};
  std::conditional_t<kInLds, Nothing, ColOperand<M, kQueries, kDim>> q;
  RegTile<M, kWaveDim, kQueries> o;
  OnlineSoftmax<Arch, M, kWaveQueries> softmax;  // of the wave's own rectangle
  int turn = 0;                                  // which bases are valid

  ROCM_SD_DEVICE FlashLargeD(const FlashParams<T>& params, T* memory, FlashGroup at)
      : Work(params, at), lds(memory) {
    wave = Arch::uniform(Arch::thread() / Arch::lanes);
    this->leave_out_the_future();
  }

  ROCM_SD_DEVICE int wave_query() const { return wave / kWavesK * kWaveQueries; }  // first of its rectangle
  ROCM_SD_DEVICE int wave_key() const { return wave % kWavesK * kWaveKeys; }
  ROCM_SD_DEVICE QueryTile queries_in_lds() const { return {lds}; }
  ROCM_SD_DEVICE WeightTile weights() const { return {lds + kWeights}; }
  ROCM_SD_DEVICE float* folds() const { return reinterpret_cast<float*>(lds + kFolds); }
  ROCM_SD_DEVICE float* bases(int which) const {
    return reinterpret_cast<float*>(lds + kBases) + which * kQueries;
  }

  ROCM_SD_DEVICE void load_queries() {
    constexpr int kPart = 16;  // rows at a time, for the sake of registers
    const auto all = this->queries();
    for (int row = 0; row < kQueries; row += kPart) {
      const auto part = rows_from<kPart>(queries_in_lds(), row);
      typename Pipeline::template Copy<Arch, kThreads, kDim, std::remove_const_t<decltype(part)>> copy;
      copy.issue(rows_from(all, row < all.rows ? row : all.rows - 1, kPart), part);
      copy.land(part);
    }
    Pipeline::template commit<Arch>();
  }
  ROCM_SD_DEVICE void load_queries_to_registers() {
    const auto all = this->queries();
    const QueryTile tile = queries_in_lds();
    unrolled<kQueries / 16>([&](int a) {
      typename Pipeline::template Copy<Arch, kThreads, kDim, QueryTile> copy;
      copy.issue(rows_from(all, a * 16 < all.rows ? a * 16 : all.rows - 1, 16), tile);
      copy.land(tile);
      Pipeline::template commit<Arch>();
      Pipeline::template wait<Arch>();
      Arch::barrier();
      unrolled<kDim / 16>([&](int d) { q.atoms[a][d] = fragment_bt<M>(tile, 0, d); });
      Arch::barrier();
    });
  }
  // s += K Q^T, of the channels of chunk n.
  ROCM_SD_DEVICE void multiply_keys(Scores& s, const Chunks& chunks, int n) {
    const auto keys = rows_from<kWaveKeys>(chunks.keys(n), wave_key());
    if constexpr (kInLds)
      mma_ABt<Arch>(s, keys,
                    columns_from<Cfg::kChunkDim>(rows_from<kWaveQueries>(queries_in_lds(), wave_query()),
                                                 n * Cfg::kChunkDim));
    else
      mma_ABt<Arch>(s, stream(keys), DepthsFrom<decltype(q)>{q, n * (Cfg::kChunkDim / 16)});
  }

  // One value per query of the wave's rectangle, for fold().
  ROCM_SD_DEVICE void publish(const WaveVec& value) const {
    float* const mine = folds() + wave % kWavesK * kQueries + wave_query();
    once_per_column(value, [&](float x, int query) { mine[query] = x; });
  }
  // What the waves have published for the queries from `first` on, folded.
  template <int kCount, class Fold>
  ROCM_SD_DEVICE ColVec<M, kCount> folded(int first, const Fold& fold) const {
    ColVec<M, kCount> value;
    for_each_column(value, [&](float& x, int query) {
      const float* const column = folds() + first + query;
      x = column[0];
      for (int w = 1; w < kWavesK; ++w) x = fold(x, column[w * kQueries]);
    });
    return value;
  }
  template <int kCount>
  ROCM_SD_DEVICE ColVec<M, kCount> maxima(int first) const {
    return folded<kCount>(first, [](float x, float y) { return Arch::max(x, y); });
  }
  // The state of all queries but for their totals.
  ROCM_SD_DEVICE OnlineSoftmax<Arch, M, kQueries> shared_state() const {
    OnlineSoftmax<Arch, M, kQueries> state;
    state.clear();
    for_each_column(state.base, [&](float& x, int query) { x = bases(turn)[query]; });
    return state;
  }

  // After a barrier: all waves find the same new bases. Maxima are read again where they are needed again:
  // they would cost registers.
  ROCM_SD_DEVICE bool outgrown() const {
    Vec most = maxima<kQueries>(0);
    return Arch::any(shared_state().outgrown(most, 1.0f));  // alike in all waves
  }
  ROCM_SD_DEVICE void rebase() {
    OnlineSoftmax<Arch, M, kQueries> state = shared_state();
    Vec factor;
    state.rebase(factor, maxima<kQueries>(0), 1.0f);
    scale(o, factor);
    once_per_column(state.base, [&](float x, int query) {
      if (wave == 0) bases(1 - turn)[query] = x;
    });
    WaveVec unused;
    softmax.rebase(unused, maxima<kWaveQueries>(wave_query()), 1.0f);
    turn = 1 - turn;
  }
  // The wave's weights go to LDS.
  ROCM_SD_DEVICE void online_softmax(Scores& s) {
    if (outgrown()) rebase();
    softmax.template exponentiate<true>(s, 1.0f);
    store_columns(columns_from<kWaveKeys>(rows_from<kWaveQueries>(weights(), wave_query()), wave_key()), s);
    Arch::barrier();
  }

  ROCM_SD_DEVICE void run_tile(Chunks& chunks, int first) {
    Scores s;
    zero(s);
    unrolled<Chunks::kKeyChunks>([&](int n) {  // S^T = K Q^T, some channels at a time
      chunks.begin(first, n);
      multiply_keys(s, chunks, n);
      if (n + 1 == Chunks::kKeyChunks) publish_maxima(s, first);
      chunks.end(n);
    });
    unrolled<Chunks::kValueChunks>([&](int n) {  // O^T += V^T P^T, some keys at a time
      const int chunk = Chunks::kKeyChunks + n;
      chunks.begin(first, chunk);
      if (n == 0) online_softmax(s);
      mma_AtBt<Arch>(o, columns_from<kWaveDim>(chunks.values(chunk), wave * kWaveDim),
                     columns_from<Cfg::kChunkKeys>(weights(), n * Cfg::kChunkKeys));
      chunks.end(chunk);
    });
  }
  ROCM_SD_DEVICE void publish_maxima(Scores& s, int first) const {
    WaveVec most;
    // One by one: registers are full, and a tile's mask is loaded into more of them (FlashWork::mask_scores).
    for_each(s, [&](float& x, int row, int column) {
      x = flash_score(p, x, this->image, this->head, this->first_query + wave_query() + column,
                      first + wave_key() + row, last_key);
    });
    col_max<Arch>(most, s);
    publish(most);
  }

  ROCM_SD_DEVICE void run_keys() {
    if (first_key >= last_key) {  // Q must not arrive over what is written there next
      Pipeline::template wait<Arch>();
      return;
    }
    Chunks chunks(lds + kRing, this->keys(), this->values());
    chunks.start(first_key);
    for (int first = first_key; first < last_key; first += kKeys) run_tile(chunks, first);
  }

  // The weights' totals of all queries.
  ROCM_SD_DEVICE Vec totals() const {
    WaveVec mine = softmax.total;
    Arch::barrier();  // the last maxima have been read
    sum_lanes(mine);
    publish(mine);
    Arch::barrier();
    return folded<kQueries>(0, [](float x, float y) { return x + y; });
  }

  ROCM_SD_DEVICE void write_output() {
    Vec share = totals();
    invert<Arch>(share);
    scale(o, share);
    const auto columns = columns_from<kWaveDim>(queries_in_lds(), wave * kWaveDim);
    if constexpr (kInLds) {
      store_columns(columns, o);  // over Q
      Arch::barrier();
      store_rows<Arch, kThreads, kDim>(this->output(), queries_in_lds());
    } else {
      const auto all = this->output();
      unrolled<kQueries / 16>([&](int a) {
        Arch::barrier();  // the last readers
        unrolled<kWaveDim / 16>([&](int r) {
          M::store_columns(columns.at(0, r * 16), decltype(columns)::Layout::kLd, o.atoms[a][r]);
        });
        Arch::barrier();
        const GlobalView<T> rows = rows_from(all, a * 16, 16);
        if (rows.rows > 0) store_rows<Arch, kThreads, kDim>(rows, queries_in_lds());
      });
    }
  }

  ROCM_SD_DEVICE void run() {
    softmax.clear();
    zero(o);
    for (int i = Arch::thread(); i < kQueries; i += kThreads) bases(0)[i] = softmax.kHidden;
    if constexpr (kInLds)
      load_queries();
    else
      load_queries_to_registers();
    run_keys();
    if (p.splits > 1) {
      Vec total = totals();
      this->store_partial(o, wave * kWaveDim, this->first_query, shared_state().base, total);
    } else {
      write_output();
    }
  }
};

}  // namespace rocm_sd
