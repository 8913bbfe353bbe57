// Pipeline: global memory -> LDS by asynchronous copies (cp.async), kStages - 1 steps ahead.
// Mapping   every thread starts the copies of its chunks of a later step before this step's products
// Traffic   Cfg::kStages stages in LDS, one barrier a step
// Limits    kStages at least 2
#pragma once

#include "composable_kernels/pipeline/async_copies.hpp"
#include "composable_kernels/pipeline/product.hpp"

namespace rocm_sd {

// A thread's chunks of a tile [kRows][Cfg::kBlockK] of a source, on their way to LDS.
template <class Arch, class Cfg, int kRows, class Source>
class AsyncChunks {
  using T = typename Cfg::T;
  using Chunks = ThreadChunks<Arch, Cfg, kRows>;
  static constexpr int kCount = Chunks::kCount;

 public:
  ROCM_SD_DEVICE explicit AsyncChunks(const Source& source) : source_(source) {
    ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i) rows_[i] = source.row(Chunks::row(i));
  }

  // k: of the tile's first column. The caller commits the copies and awaits them.
  ROCM_SD_DEVICE void copy(T* tile, int k) const {
    typename Source::Column column = source_.column(k, Chunks::column(0));
    ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if (!Chunks::has(i)) continue;
      if (!Chunks::kOneColumn && i > 0) column = source_.column(k, Chunks::column(i));
      const Chunk<T> chunk = source_.chunk(rows_[i], column);
      if constexpr (Source::kReread)
        Arch::copy_async_cached(tile + Chunks::place(i), chunk.data, chunk.valid);
      else
        Arch::copy_async(tile + Chunks::place(i), chunk.data, chunk.valid);
    }
  }

 private:
  Source source_;
  typename Source::Row rows_[kCount];
};

template <class Arch, class Cfg, class Weights, class Rows>
class AsyncCopies::Product {
  using T = typename Cfg::T;
  static_assert(Cfg::kStages >= 2);

 public:
  static constexpr int kAhead = Cfg::kStages - 1;  // steps under way
  static constexpr Prefetch kPrefetch = Prefetch::kBeforeMma;

  using WeightCopy = AsyncChunks<Arch, Cfg, Cfg::kBlockN, Weights>;
  using RowCopy = AsyncChunks<Arch, Cfg, Cfg::kBlockM, Rows>;

  // lds: Cfg::kLdsBytes, aligned to 16; free for other use after a barrier. last: of the steps, exclusive.
  ROCM_SD_DEVICE Product(char* lds, WeightCopy& weights, RowCopy& rows, int last)
      : ring_{reinterpret_cast<T*>(lds)}, weights_(weights), rows_(rows), last_(last) {}

  ROCM_SD_DEVICE void prefetch(int step) {
    if (step < last_) {
      weights_.copy(ring_.weights(ring_.free), step * Cfg::kBlockK);
      rows_.copy(ring_.rows(ring_.free), step * Cfg::kBlockK);
    }
    Arch::commit_copies();
    ring_.fill();
  }
  ROCM_SD_DEVICE void receive() const {
    Arch::template wait_copies<kAhead - 1>();
    Arch::barrier();
  }
  ROCM_SD_DEVICE void mma(Accumulators<Arch, Cfg>& acc) const {
    mma_ABt<Arch, Cfg>(acc, ring_.weights(ring_.stage) + place_.n * Cfg::kLd,
                       ring_.rows(ring_.stage) + place_.m * Cfg::kLd);
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
