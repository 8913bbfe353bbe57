// Copies of a tile's rows from global memory to LDS in pieces of 16 bytes (chunks).
//
// Where the rows come from is a Source (rows of a matrix, gathered pixels of an image):
//   Row row(r)             whatever of row r of the tile stays the same along k; asked once, before the loop
//   Column column(k, within)  the same of depth k + within: k of the tile's first column, the same in all
//                          threads, within a multiple of a chunk; asked once per step where the threads'
//                          number is a multiple of a row's chunks (else once per chunk)
//   chunk(row, column), near_chunk(row, column)  the address of a chunk, readable in any case, and whether
//   its elements belong to
//                          the product; else zeros are copied
//   base(k), offset(row, column, nowhere)  the same for Arch::kBufferLoads: bytes from an address that is the
//                          same in all threads, or `nowhere`; only where one_base()
//   kReread                whether this workgroup soon reads the same chunks again
#pragma once

#include "composable_kernels/tile/config.hpp"

namespace rocm_sd {

#if defined(__CUDACC__)
using Words4 = uint4;
#else
using Words4 = uint32_t __attribute__((vector_size(16), may_alias));  // 16 bytes in registers
#endif

template <class T>
struct Chunk {
  const T* data;
  bool valid;
};

// Rows [first, rows) of a matrix [rows, depth], `stride` elements apart. Rows beyond the last repeat it:
// nothing stores their products. depth and stride: multiples of a chunk; data aligned to one.
template <class Storage>
struct MatrixRows {
  using T = Storage;
  struct Row {
    const T* data;
    uint32_t offset;  // of data from base()
  };
  using Column = int;
  static constexpr bool kReread = false;

  const T* data;
  int64_t stride;
  int first, rows, depth;

  ROCM_SD_DEVICE Row row(int r) const { return row_at(first + r < rows ? first + r : rows - 1, first); }
  ROCM_SD_DEVICE Column column(int k, int within) const { return k + within; }
  ROCM_SD_DEVICE Chunk<T> chunk(const Row& row, Column k) const {
    const bool valid = k < depth;
    return {row.data + (valid ? k : 0), valid};
  }
  ROCM_SD_DEVICE Chunk<T> near_chunk(const Row& row, Column k) const { return chunk(row, k); }
  ROCM_SD_DEVICE uint32_t offset(const Row& row, Column k, uint32_t nowhere) const {
    return row.offset + (k < depth ? static_cast<uint32_t>(k) * sizeof(T) : nowhere);
  }
  ROCM_SD_DEVICE const void* base(int) const { return data + first * stride; }
  ROCM_SD_DEVICE bool one_base() const { return true; }

 protected:
  // Row `at` of the matrix; base: the row that base() begins with, not beyond it.
  ROCM_SD_DEVICE Row row_at(int at, int base) const {
    return {data + at * stride,
            static_cast<uint32_t>((at - base) * stride * static_cast<int64_t>(sizeof(T)))};
  }
};

// The part of one thread in copying tiles [kRows][Cfg::kBlockK] of a source: it keeps the same places of
// the tile in every step. issue() starts the copy of a step, land() ends it; after land() and a barrier the
// workgroup may read the tile.
template <class Arch, class Cfg, int kRows, class Source>
class TileCopy {
  using T = typename Cfg::T;
  static constexpr int kThreads = Cfg::kWaves * Arch::lanes;
  static constexpr int kPerRow = Cfg::kBlockK / Cfg::kChunk;  // chunks
  static constexpr int kTotal = kRows * kPerRow;
  static constexpr int kCount = (kTotal + kThreads - 1) / kThreads;
  static constexpr bool kEven = kTotal % kThreads == 0;          // every thread has kCount chunks
  static constexpr bool kOneColumn = kThreads % kPerRow == 0;    // all of a thread's chunks have one k
  static constexpr int kHeld = Arch::kAsyncCopies ? 1 : kCount;  // chunks in registers
  static constexpr bool kMasked =
      kCount <= 32;  // zeros are put in place by land(): the loads are not awaited before

 public:
  ROCM_SD_DEVICE explicit TileCopy(const Source& source) : source_(source) {
    ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i) rows_[i] = source.row(row_of(i));
  }

  // k: of the tile's first column.
  ROCM_SD_DEVICE void issue(T* tile, int k) {
    if (buffered()) return issue_buffered(k);
    valid_ = 0;
    typename Source::Column column = source_.column(k, column_of(0));
    ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if (!kEven && Arch::thread() + i * kThreads >= kTotal) continue;
      if (!kOneColumn && i > 0) column = source_.column(k, column_of(i));
      const Chunk<T> chunk = chunk_of(rows_[i], column);
      if constexpr (Arch::kAsyncCopies && Source::kReread) {
        Arch::copy_async_cached(place(tile, i), chunk.data, chunk.valid);
      } else if constexpr (Arch::kAsyncCopies) {
        Arch::copy_async(place(tile, i), chunk.data, chunk.valid);
      } else {
        held_[i] = *reinterpret_cast<const Words4*>(chunk.data);
        if constexpr (kMasked)
          valid_ |= static_cast<uint32_t>(chunk.valid) << i;
        else if (!chunk.valid)
          held_[i] = Words4{};
      }
    }
  }
  // Writes what issue() left in registers; async copies are awaited by the caller.
  ROCM_SD_DEVICE void land(T* tile) {
    if constexpr (!Arch::kAsyncCopies) {
      if (buffered()) {
        ROCM_SD_UNROLL
        for (int i = 0; i < kCount; ++i)
          if (kEven || Arch::thread() + i * kThreads < kTotal)
            *reinterpret_cast<Words4*>(place(tile, i)) = held_[i];
        return;
      }
      ROCM_SD_UNROLL
      for (int i = 0; i < kCount; ++i) {
        if (!kEven && Arch::thread() + i * kThreads >= kTotal) continue;
        const bool valid = !kMasked || (valid_ >> (i % 32) & 1) != 0;
        *reinterpret_cast<Words4*>(place(tile, i)) = valid ? held_[i] : Words4{};
      }
    }
  }

 private:
  ROCM_SD_DEVICE Chunk<T> chunk_of(const typename Source::Row& row,
                                   const typename Source::Column& column) const {
    if constexpr (Arch::kBufferLoads)
      return source_.near_chunk(row, column);
    else
      return source_.chunk(row, column);
  }
  // The same in all threads: whether loads put zeros in place by themselves.
  ROCM_SD_DEVICE bool buffered() const {
    if constexpr (Arch::kBufferLoads)
      return source_.one_base();
    else
      return false;
  }
  ROCM_SD_DEVICE void issue_buffered(int k) {
    if constexpr (Arch::kBufferLoads) {
      const auto from = Arch::buffer(source_.base(k));
      typename Source::Column column = source_.column(k, column_of(0));
      ROCM_SD_UNROLL
      for (int i = 0; i < kCount; ++i) {
        if (!kEven && Arch::thread() + i * kThreads >= kTotal) continue;
        if (!kOneColumn && i > 0) column = source_.column(k, column_of(i));
        held_[i] = Arch::template load_buffer<Words4>(from, source_.offset(rows_[i], column, Arch::kNowhere));
      }
    }
  }
  static ROCM_SD_DEVICE int row_of(int i) {
    const int at = Arch::thread() + i * kThreads;
    return kEven || at < kTotal ? at / kPerRow : 0;
  }
  static ROCM_SD_DEVICE int column_of(int i) {
    return (Arch::thread() + i * kThreads) % kPerRow * Cfg::kChunk;
  }
  static ROCM_SD_DEVICE T* place(T* tile, int i) { return tile + Cfg::element(row_of(i), column_of(i)); }

  Source source_;
  typename Source::Row rows_[kCount];
  Words4 held_[kHeld];
  uint32_t valid_ = 0;  // bit i: chunk i
};

}  // namespace rocm_sd
