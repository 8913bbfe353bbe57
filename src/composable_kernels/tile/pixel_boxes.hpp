// Pixels of images in boxes, columns by rows by images, as TMA fetches them at once: which box is
// where, and which pixel each of its pixels is.
#pragma once

#include "composable_kernels/tile/divide.hpp"

namespace rocm_sd {

// Boxes of 128 pixels over images [images, rows, columns]. They are counted along a row of boxes, then down
// an image, then over the images; pixels in them in that order too. What of a box lies beyond the images is
// no pixel.
struct PixelBoxes {
  static constexpr int kBits = 7, kPixels = 1 << kBits;

  int32_t images, rows, columns;
  int32_t column_bits, row_bits;  // a box has 2^column_bits columns, 2^row_bits rows, the rest is images
  FastDivide across, down;        // boxes of a row of them, and of a column

  struct Pixel {
    int32_t image, row, column;
  };
  ROCM_SD_DEVICE constexpr int32_t box_columns() const { return 1 << column_bits; }
  ROCM_SD_DEVICE constexpr int32_t box_rows() const { return 1 << row_bits; }
  ROCM_SD_DEVICE constexpr int32_t image_bits() const { return kBits - column_bits - row_bits; }
  ROCM_SD_DEVICE constexpr int32_t box_images() const { return 1 << image_bits(); }
  ROCM_SD_DEVICE constexpr int64_t boxes() const {
    return int64_t{across.divisor} * down.divisor * (((images - 1) >> image_bits()) + 1);
  }

  // The first of a box.
  ROCM_SD_DEVICE Pixel corner(int box) const {
    const int line = across.quotient(box), group = down.quotient(line);
    return {group * box_images(), (line - group * down.divisor) << row_bits,
            (box - line * across.divisor) << column_bits};
  }
  // Pixel `at` of all boxes, counted over the images as they lie in memory, or -1.
  ROCM_SD_DEVICE int pixel(int at) const {
    const Pixel first = corner(at >> kBits);
    const int column = first.column + (at & (box_columns() - 1));
    const int row = first.row + (at >> column_bits & (box_rows() - 1));
    const int image = first.image + ((at & (kPixels - 1)) >> (column_bits + row_bits));
    return column < columns && row < rows && image < images ? (image * rows + row) * columns + column : -1;
  }
};

inline PixelBoxes pixel_boxes_of(int32_t images, int32_t rows, int32_t columns, int32_t column_bits,
                                 int32_t row_bits) {
  const auto boxes = [](int32_t extent, int32_t bits) { return fast_divide(((extent - 1) >> bits) + 1); };
  return {images, rows, columns, column_bits, row_bits, boxes(columns, column_bits), boxes(rows, row_bits)};
}

// The fewest boxes, of these the widest. Extents at least 1.
inline PixelBoxes pixel_boxes(int32_t images, int32_t rows, int32_t columns) {
  PixelBoxes best{};
  for (int32_t column_bits = PixelBoxes::kBits; column_bits >= 0; --column_bits)
    for (int32_t row_bits = PixelBoxes::kBits - column_bits; row_bits >= 0; --row_bits) {
      const PixelBoxes these = pixel_boxes_of(images, rows, columns, column_bits, row_bits);
      if (best.images == 0 || these.boxes() < best.boxes()) best = these;
    }
  return best;
}

// The fewer of boxes of 8 columns by 16 rows, or by 8 rows of two images, as TmaHaloCfg takes them.
inline PixelBoxes halo_boxes(int32_t images, int32_t rows, int32_t columns) {
  const PixelBoxes tall = pixel_boxes_of(images, rows, columns, 3, 4);
  const PixelBoxes two = pixel_boxes_of(images, rows, columns, 3, 3);
  return two.boxes() < tall.boxes() ? two : tall;
}

}  // namespace rocm_sd
