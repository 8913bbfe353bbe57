// Sources: where the rows of a tile come from in global memory, 16 bytes (a chunk) at a time. Here rows of a
// matrix; tile/conv_gather.hpp has the pixels under a filter.
//
// A Source has
//   Row row(r)                 what stays the same along k of row r of the tile; asked once, before the loop
//   Column column(k, within)   the same of depth k + within: k of the tile's first column, the same in all
//                              threads, within a multiple of a chunk; asked once per step where the threads'
//                              number is a multiple of a row's chunks, else once per chunk
//   chunk(row, column), near_chunk(row, column)
//                              the address of a chunk, readable in any case, and whether its elements belong
//                              to the product; else zeros are copied
//   base(k), offset(row, column, nowhere)
//                              the same for Arch::kBufferLoads: bytes from an address that is the same in all
//                              threads, or `nowhere`; only where kOneBase
//   kOneBase                   whether it has these
//   kReread                    whether this workgroup soon reads the same chunks again
#pragma once

#include "composable_kernels/chunk16.hpp"
#include "composable_kernels/tile/config.hpp"

namespace rocm_sd {

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
  static constexpr bool kReread = false, kOneBase = true;

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

 protected:
  // Row `at` of the matrix; base: the row that base() begins with, not beyond it.
  ROCM_SD_DEVICE Row row_at(int at, int base) const {
    return {data + at * stride,
            static_cast<uint32_t>((at - base) * stride * static_cast<int64_t>(sizeof(T)))};
  }
};

// Rows of a GEGLU's weight in the order that finish_tile pairs: per wave, half of its channels as values,
// then their gates.
template <class Cfg>
struct GatedRows : MatrixRows<typename Cfg::T> {
  ROCM_SD_DEVICE const void* base(int) const { return this->data + this->first / 2 * this->stride; }
  ROCM_SD_DEVICE typename MatrixRows<typename Cfg::T>::Row row(int r) const {
    constexpr int kHalf = Cfg::kWaveN / 2;
    const int wave = r / Cfg::kWaveN, at = r % Cfg::kWaveN, outputs = this->rows / 2;
    const int value = this->first / 2 + wave * kHalf + at % kHalf;
    const int clamped = value < outputs ? value : outputs - 1;
    return this->row_at(at < kHalf ? clamped : outputs + clamped, this->first / 2);
  }
};

// The same of a depth of whole steps: k moves base(), and a chunk's offset from it stays.
template <class Rows>
struct InWholeSteps : Rows {
  using T = typename Rows::T;
  using Row = typename Rows::Row;
  ROCM_SD_DEVICE int column(int, int within) const { return within; }
  ROCM_SD_DEVICE uint32_t offset(const Row& row, int within, uint32_t) const {
    return row.offset + static_cast<uint32_t>(within) * sizeof(T);
  }
  ROCM_SD_DEVICE const void* base(int k) const { return static_cast<const T*>(Rows::base(0)) + k; }
};
template <class Storage>
using WholeMatrixRows = InWholeSteps<MatrixRows<Storage>>;

}  // namespace rocm_sd
