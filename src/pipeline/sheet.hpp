// Contact sheets: pictures in a grid, each with a line of text below.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "rocm_sd/image.hpp"

namespace rocm_sd {

// Pictures of one size, row by row, `columns` a row; labels may be empty, or one for each picture (ASCII;
// other characters show as '?', what does not fit is cut). The glyphs are the shipped share/font/label.png.
// Throws UsageError for no pictures or different sizes.
Image make_sheet(std::span<const Image> pictures, std::span<const std::string> labels, int columns);

struct AxisLabels {
  std::vector<std::string> columns, rows;  // above and left of the pictures
  std::string corner;
};
// columns x rows pictures, row by row, of any sizes: every cell has the size of the largest. Throws
// UsageError for another number of pictures.
Image make_axis_sheet(std::span<const Image> pictures, const AxisLabels& labels);

}  // namespace rocm_sd
