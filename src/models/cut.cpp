#include "models/cut.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "models/parameters.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 21;  // of whole rows, read at a time

struct Place {
  int64_t row = 0;   // of the whole tensor
  int64_t left = 0;  // rows from there to the range's end
};

Place place_of(const Cut& cut, int64_t row) {
  for (const CutRange& range : cut.rows) {
    if (row < range.size()) return {range.begin + row, range.size() - row};
    row -= range.size();
  }
  throw InternalError(concat("cut: row ", row, " lies beyond the part of ", cut.whole));
}

}  // namespace

int64_t Cut::row_count() const {
  int64_t sum = 0;
  for (const CutRange& range : rows) sum += range.size();
  return sum;
}

void read_cut(const ParameterSource& source, const std::string& name, const Cut& cut, int64_t begin,
              int64_t count, DType dtype, void* dst) {
  const int64_t columns = cut.columns.size(), whole_columns = cut.whole_columns(), end = begin + count;
  const size_t size = dtype_size(dtype);
  char* to = static_cast<char*>(dst);
  std::vector<char> rows;
  for (int64_t at = begin; at < end;) {
    const Place place = place_of(cut, at / columns);
    const int64_t column = at % columns;
    if (columns == whole_columns) {
      const int64_t piece = std::min(end - at, place.left * columns - column);
      source.read_part(name, cut.whole, place.row * columns + column, piece, dtype, to);
      to += static_cast<size_t>(piece) * size;
      at += piece;
      continue;
    }
    const int64_t wanted = (end - at + column + columns - 1) / columns;
    const int64_t here = std::min({wanted, place.left, std::max<int64_t>(1, kChunkElements / whole_columns)});
    rows.resize(static_cast<size_t>(here * whole_columns) * size);
    source.read_part(name, cut.whole, place.row * whole_columns, here * whole_columns, dtype, rows.data());
    for (int64_t row = 0; row < here && at < end; ++row) {
      const int64_t first = at % columns, piece = std::min(columns - first, end - at);
      const int64_t from = row * whole_columns + cut.columns.begin + first;
      std::memcpy(to, rows.data() + static_cast<size_t>(from) * size, static_cast<size_t>(piece) * size);
      to += static_cast<size_t>(piece) * size;
      at += piece;
    }
  }
}

std::vector<float> cut_rows(const std::vector<float>& values, const Cut& cut) {
  const auto columns = static_cast<int64_t>(values.size()) / cut.whole[0];
  std::vector<float> out;
  out.reserve(static_cast<size_t>(cut.row_count() * columns));
  for (const CutRange& range : cut.rows)
    out.insert(out.end(), values.begin() + range.begin * columns, values.begin() + range.end * columns);
  return out;
}

std::vector<float> cut_columns(const std::vector<float>& values, const Cut& cut) {
  const int64_t whole = cut.whole_columns(), rows = static_cast<int64_t>(values.size()) / whole;
  std::vector<float> out;
  out.reserve(static_cast<size_t>(rows * cut.columns.size()));
  for (int64_t row = 0; row < rows; ++row)
    out.insert(out.end(), values.begin() + row * whole + cut.columns.begin,
               values.begin() + row * whole + cut.columns.end);
  return out;
}

}  // namespace rocm_sd
