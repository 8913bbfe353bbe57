// Contact sheets: pictures in a grid, each with a line of text below.
#pragma once

#include <span>
#include <string>

#include "rocm_sd/image.hpp"

namespace rocm_sd {

// Pictures of one size, row by row, `columns` a row; labels may be empty, or one for each picture (ASCII;
// other characters show as '?', what does not fit is cut). The glyphs are the shipped share/font/label.png.
// Throws UsageError for no pictures or different sizes.
Image make_sheet(std::span<const Image> pictures, std::span<const std::string> labels, int columns);

}  // namespace rocm_sd
