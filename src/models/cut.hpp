// Cut: what a layer holds of a tensor of the checkpoint where several ranks have a share of it each
// (tensor_split.hpp), and how that is read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "base/shape.hpp"

namespace rocm_sd {

class ParameterSource;

// [begin, end)
struct CutRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const CutRange&, const CutRange&) = default;
};

// Rows of a matrix [rows,columns], one range after the other, and of these rows a range of columns. A vector
// has one column.
struct Cut {
  Shape whole;  // of the checkpoint's tensor
  std::vector<CutRange> rows;
  CutRange columns;

  int64_t whole_columns() const { return whole.numel() / whole[0]; }
  int64_t row_count() const;
};
using CutPart = std::shared_ptr<const Cut>;  // null: the whole tensor

// Elements [begin, begin + count) of the cut part, in its own order. Rows of which some columns are asked for
// are read whole, a few at a time.
void read_cut(const ParameterSource& source, const std::string& name, const Cut& cut, int64_t begin,
              int64_t count, DType dtype, void* dst);

// values [whole rows,columns] or [rows,whole columns] -> the rows, or the columns, of the cut alone.
std::vector<float> cut_rows(const std::vector<float>& values, const Cut& cut);
std::vector<float> cut_columns(const std::vector<float>& values, const Cut& cut);

}  // namespace rocm_sd
