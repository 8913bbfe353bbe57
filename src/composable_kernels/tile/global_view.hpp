// GlobalView: rows of a matrix in global memory, as copies read and write them.
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

// Row i begins at data + i * stride. Rows from `rows` on do not exist: readers get the last one that does
// (and hide it), writers leave them out.
template <class Storage>
struct GlobalView {
  using T = Storage;
  T* data;
  int64_t stride;  // elements from row to row
  int rows;        // at least 1, for readers

  ROCM_SD_DEVICE T* row(int i) const { return data + i * stride; }
  ROCM_SD_DEVICE T* row_or_last(int i) const { return data + (i < rows ? i : rows - 1) * stride; }
};

// At most `count` rows from `first` on.
template <class T>
ROCM_SD_DEVICE GlobalView<T> rows_from(const GlobalView<T>& view, int first, int count) {
  const int left = view.rows - first;
  return {view.data + first * view.stride, view.stride, left < count ? left : count};
}
template <class T>
ROCM_SD_DEVICE GlobalView<T> columns_from(const GlobalView<T>& view, int column) {
  return {view.data + column, view.stride, view.rows};
}

}  // namespace rocm_sd
