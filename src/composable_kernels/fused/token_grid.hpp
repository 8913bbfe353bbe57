// Which pixels of a map token merging takes as destinations, and the order of all of them (Bolya and Hoffman,
// "Token Merging for Fast Stable Diffusion", 2023, section 4.1).
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

// The tokens of a map in squares of 2 x 2, of which the upper left is a destination and the others are
// sources. An odd last row or column is all sources. Destinations and sources have numbers in raster order.
struct TokenGrid {
  int64_t height = 0, width = 0;

  ROCM_SD_DEVICE int64_t tokens() const { return height * width; }
  ROCM_SD_DEVICE int64_t destinations() const { return (height / 2) * (width / 2); }
  ROCM_SD_DEVICE int64_t sources() const { return tokens() - destinations(); }
  ROCM_SD_DEVICE bool is_destination(int64_t token) const {
    const int64_t y = token / width, x = token % width;
    return y % 2 == 0 && x % 2 == 0 && y + 1 < height && x + 1 < width;
  }
  // Destinations that come before the token in raster order: its own number, if it is one.
  ROCM_SD_DEVICE int64_t destinations_before(int64_t token) const {
    const int64_t y = token / width, x = token % width, across = width / 2, down = height / 2;
    const int64_t rows = (y + 1) / 2 < down ? (y + 1) / 2 : down;
    if (y % 2 != 0 || y / 2 >= down) return rows * across;
    return rows * across + ((x + 1) / 2 < across ? (x + 1) / 2 : across);
  }
  // Its place where all destinations come first, and the sources behind them.
  ROCM_SD_DEVICE int64_t sorted(int64_t token) const {
    const int64_t before = destinations_before(token);
    return is_destination(token) ? before : destinations() + token - before;
  }
};

}  // namespace rocm_sd
