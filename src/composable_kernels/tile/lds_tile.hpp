// LdsTile: a rectangle of elements in LDS whose type says where each element lies: its extents and the layout
// of its rows. Kernels name elements by row and column; only this file knows addresses.
#pragma once

#include "composable_kernels/chunk16.hpp"
#include "composable_kernels/tile/global_view.hpp"

namespace rocm_sd {

// ---- layouts: kLd, elements from row to row, and element(row, column) ----

// Rows one behind the other.
template <int kRowElements>
struct RowMajor {
  static constexpr int kLd = kRowElements;
  static constexpr bool kTransposed = false;
  static ROCM_SD_DEVICE constexpr int element(int row, int column) { return row * kLd + column; }
};

// Columns one behind the other: the transposed rectangle in rows. Behind every 8 columns kSkipped elements
// stay empty.
template <int kColumnElements, int kSkipped = 0>
struct ColumnMajor {
  static constexpr int kLd = kColumnElements, kSkip = kSkipped;
  static constexpr bool kTransposed = true;
  static ROCM_SD_DEVICE constexpr int element(int row, int column) {
    return column * kLd + column / 8 * kSkip + row;
  }
};

// Rows without padding, whose 16-byte pieces (kPiece elements) are permuted from row to row: neighbouring
// lanes that access 16 bytes each then meet in no bank. A row has 4 or 8 pieces; every 8 rows it begins anew.
template <int kRowElements, int kPiece>
struct SwizzledRows {
  static constexpr int kLd = kRowElements, kPieces = kRowElements / kPiece;
  static constexpr bool kTransposed = false;
  static_assert(kPieces == 4 || kPieces == 8);
  static ROCM_SD_DEVICE constexpr int element(int row, int column) {
    const int key = kPieces == 4 ? row / 2 : row;  // 128 bytes hold two rows of 4 pieces
    return row * kLd + ((column / kPiece ^ key % kPieces) * kPiece | column % kPiece);
  }
};

// ---- the tile ----

template <class Storage, int kRowCount, int kColumnCount, class RowLayout>
struct LdsTile {
  using T = Storage;
  using Layout = RowLayout;
  static constexpr int kRows = kRowCount, kCols = kColumnCount;
  static constexpr int kElements =
      Layout::kTransposed ? Layout::element(0, kCols) : kRows * Layout::kLd;  // of LDS

  T* data;

  ROCM_SD_DEVICE T* at(int row, int column) const { return data + Layout::element(row, column); }
};

// The kRowCount rows from `row` on; in swizzled layouts, row is a multiple of 8.
template <int kRowCount, class T, int kRows, int kCols, class Layout>
ROCM_SD_DEVICE LdsTile<T, kRowCount, kCols, Layout> rows_from(const LdsTile<T, kRows, kCols, Layout>& tile,
                                                              int row) {
  return {tile.at(row, 0)};
}
// The kColumnCount columns from `column` on, of layouts without a swizzle.
template <int kColumnCount, class T, int kRows, int kCols, class Layout>
ROCM_SD_DEVICE LdsTile<T, kRows, kColumnCount, Layout> columns_from(
    const LdsTile<T, kRows, kCols, Layout>& tile, int column) {
  return {tile.at(0, column)};
}

// ---- 16 bytes of a row ----

// Rows may begin at multiples of 8 bytes only. A typedef of its own lowers an alignment; as a template's
// argument it would lose it.
#if !defined(__CUDACC__)
typedef Chunk16 HalfAlignedChunk __attribute__((aligned(8), may_alias));
#endif
template <class T, int kRows, int kCols, class Layout>
ROCM_SD_DEVICE Chunk16 load_chunk(const LdsTile<T, kRows, kCols, Layout>& tile, int row, int column) {
  const T* const at = tile.at(row, column);
#if !defined(__CUDACC__)
  if constexpr (Layout::kLd * sizeof(T) % 16 != 0) return *reinterpret_cast<const HalfAlignedChunk*>(at);
#endif
  return *reinterpret_cast<const Chunk16*>(at);
}
template <class T, int kRows, int kCols, class Layout>
ROCM_SD_DEVICE void store_chunk(const LdsTile<T, kRows, kCols, Layout>& tile, int row, int column,
                                Chunk16 chunk) {
  T* const at = tile.at(row, column);
#if !defined(__CUDACC__)
  if constexpr (Layout::kLd * sizeof(T) % 16 != 0) {
    *reinterpret_cast<HalfAlignedChunk*>(at) = chunk;
    return;
  }
#endif
  *reinterpret_cast<Chunk16*>(at) = chunk;
}

// ---- by the whole workgroup ----

// Columns [kFirst, kCols) := of(column).
template <class Arch, int kThreads, int kFirst, class T, int kRows, int kCols, class Layout, class F>
ROCM_SD_DEVICE void fill_columns(const LdsTile<T, kRows, kCols, Layout>& tile, const F& of) {
  constexpr int kCount = kCols - kFirst;
  if constexpr (kCount > 0)
    for (int i = Arch::thread(); i < kRows * kCount; i += kThreads)
      store(*tile.at(i / kCount, kFirst + i % kCount), of(kFirst + i % kCount));
}

// The first kWidth columns of the tile's rows to those rows of `to` that exist.
template <class Arch, int kThreads, int kWidth, class T, int kRows, int kCols, class Layout>
ROCM_SD_DEVICE void store_rows(const GlobalView<T>& to, const LdsTile<T, kRows, kCols, Layout>& tile) {
  constexpr int kChunks = kWidth / 8;
  const int rows = to.rows < kRows ? to.rows : kRows;
  for (int i = Arch::thread(); i < rows * kChunks; i += kThreads) {
    const int row = i / kChunks, column = i % kChunks * 8;
    *reinterpret_cast<Chunk16*>(to.row(row) + column) = load_chunk(tile, row, column);
  }
}

}  // namespace rocm_sd
