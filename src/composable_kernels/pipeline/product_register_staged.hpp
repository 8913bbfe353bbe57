// Pipeline: global memory -> registers -> LDS, one step ahead. What a family takes whose copies cannot reach
// LDS by themselves.
// Mapping   every thread loads its chunks of the next step's tiles before this step's products and writes them
//           to LDS after these
// Traffic   Cfg::kStages 2: double-buffered, one barrier a step; 1: one tile in LDS, two barriers a step
//           Cfg::kShape.direct: one operand goes around LDS
// Limits    kStages 1 or 2
#pragma once

#include <type_traits>

#include "composable_kernels/pipeline/direct_fragments.hpp"
#include "composable_kernels/pipeline/product.hpp"
#include "composable_kernels/pipeline/register_staged.hpp"

namespace rocm_sd {

// A thread's chunks of a tile [kRows][Cfg::kBlockK] of a source, in registers.
template <class Arch, class Cfg, int kRows, class Source>
class RegisterChunks {
  using T = typename Cfg::T;
  using Chunks = ThreadChunks<Arch, Cfg, kRows>;
  static constexpr int kCount = Chunks::kCount, kSets = Cfg::kShape.ahead;
  static constexpr bool kMasked = kCount <= 32;  // store() puts zeros in place: no load is awaited before
  static constexpr bool kBuffered = Arch::kBufferLoads && Source::kOneBase;  // loads do so by themselves

 public:
  ROCM_SD_DEVICE explicit RegisterChunks(const Source& source) : source_(source) {
    ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i) rows_[i] = source.row(Chunks::row(i));
  }

  // k: of the tile's first column. set: of registers, known to the compiler.
  ROCM_SD_DEVICE void load(int k, int set) {
    if constexpr (kBuffered) {
      const auto from = Arch::buffer(source_.base(k));
      for_each(k, [&](int i, const typename Source::Column& column) {
        words_[set][i] =
            Arch::template load_buffer<Chunk16>(from, source_.offset(rows_[i], column, Arch::kNowhere));
      });
    } else {
      valid_[set] = 0;
      for_each(k, [&](int i, const typename Source::Column& column) {
        const Chunk<T> chunk = chunk_of(rows_[i], column);
        words_[set][i] = *reinterpret_cast<const Chunk16*>(chunk.data);
        if constexpr (kMasked)
          valid_[set] |= static_cast<uint32_t>(chunk.valid) << i;
        else if (!chunk.valid)
          words_[set][i] = Chunk16{};
      });
    }
  }
  // To LDS; after a barrier the workgroup may read the tile.
  ROCM_SD_DEVICE void store(T* tile, int set) const {
    ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if (!Chunks::has(i)) continue;
      const bool valid = kBuffered || !kMasked || (valid_[set] >> (i % 32) & 1) != 0;
      *reinterpret_cast<Chunk16*>(tile + Chunks::place(i)) = valid ? words_[set][i] : Chunk16{};
    }
  }

 private:
  // f(i, column of chunk i) for each that the thread has.
  template <class F>
  ROCM_SD_DEVICE void for_each(int k, const F& f) {
    typename Source::Column column = source_.column(k, Chunks::column(0));
    ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if (!Chunks::has(i)) continue;
      if (!Chunks::kOneColumn && i > 0) column = source_.column(k, Chunks::column(i));
      f(i, column);
    }
  }
  ROCM_SD_DEVICE Chunk<T> chunk_of(const typename Source::Row& row,
                                   const typename Source::Column& column) const {
    if constexpr (Arch::kBufferLoads)
      return source_.near_chunk(row, column);
    else
      return source_.chunk(row, column);
  }

  Source source_;
  typename Source::Row rows_[kCount];
  Chunk16 words_[kSets][kCount];
  uint32_t valid_[kSets] = {};  // bit i: chunk i
};

template <class Arch, class Cfg, class Weights, class Rows>
class RegisterStaged::Product {
  using T = typename Cfg::T;
  static_assert(Cfg::kStages == 1 || Cfg::kStages == 2);

 public:
  static constexpr int kAhead = 1;  // steps under way
  static constexpr Prefetch kPrefetch = Prefetch::kBeforeMma;

  static constexpr bool kDirectWeights = Cfg::kShape.direct == DirectOperand::kWeights,
                        kDirectRows = Cfg::kShape.direct == DirectOperand::kRows;
  using WeightCopy = std::conditional_t<kDirectWeights, DirectFragments<Arch, Cfg, true, Weights>,
                                        RegisterChunks<Arch, Cfg, Cfg::kBlockN, Weights>>;
  using RowCopy = std::conditional_t<kDirectRows, DirectFragments<Arch, Cfg, false, Rows>,
                                     RegisterChunks<Arch, Cfg, Cfg::kBlockM, Rows>>;

  // lds: Cfg::kLdsBytes, aligned to 16; free for other use after a barrier. last: of the steps, exclusive.
  ROCM_SD_DEVICE Product(char* lds, WeightCopy& weights, RowCopy& rows, int last)
      : ring_{reinterpret_cast<T*>(lds)}, weights_(weights), rows_(rows), last_(last) {}

  ROCM_SD_DEVICE void prefetch(int step) {
    if (step < last_) {
      weights_.load(step * Cfg::kBlockK, 0);
      rows_.load(step * Cfg::kBlockK, 0);
    }
  }
  ROCM_SD_DEVICE void receive() {
    if constexpr (Cfg::kStages == 1) Arch::barrier();  // the tile's last readers
    if constexpr (kDirectWeights)
      weights_.take(0);
    else
      weights_.store(ring_.weights(ring_.stage), 0);
    if constexpr (kDirectRows)
      rows_.take(0);
    else
      rows_.store(ring_.rows(ring_.stage), 0);
    Arch::barrier();
  }
  ROCM_SD_DEVICE void mma(Accumulators<Arch, Cfg>& acc) const {
    const WeightsInLds<Arch, Cfg> weights{ring_.weights(ring_.stage) + place_.n * Cfg::kLd};
    const RowsInLds<Arch, Cfg> rows{ring_.rows(ring_.stage) + place_.m * Cfg::kLd};
    if constexpr (kDirectWeights)
      mma_fragments<Arch, Cfg>(acc, [&](int i, int k) { return weights_.fragment(i, k, 0); }, rows);
    else if constexpr (kDirectRows)
      mma_fragments<Arch, Cfg>(acc, weights, [&](int j, int k) { return rows_.fragment(j, k, 0); });
    else
      mma_fragments<Arch, Cfg>(acc, weights, rows);
  }
  ROCM_SD_DEVICE void advance() { ring_.advance(); }
  ROCM_SD_DEVICE void finish(Accumulators<Arch, Cfg>&) const {}

 private:
  const WavePlace<Arch, Cfg> place_;
  StageRing<Cfg> ring_;
  WeightCopy& weights_;
  RowCopy& rows_;
  const int last_;
};

}  // namespace rocm_sd
