// Boxes of pixels: each pixel of the images is in one place of one box, where TMA would put it.
#include "composable_kernels/tile/pixel_boxes.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace rocm_sd {
namespace {

struct Extents {
  int32_t images, rows, columns;
};
constexpr Extents kExtents[] = {{2, 64, 64}, {2, 8, 8},   {1, 8, 8},   {3, 12, 20}, {1, 1, 1},    {2, 13, 15},
                                {5, 96, 96}, {1, 1, 700}, {1, 300, 1}, {130, 1, 1}, {2, 104, 152}};

class PixelBoxesTest : public testing::TestWithParam<PixelBoxes (*)(int32_t, int32_t, int32_t)> {};

TEST_P(PixelBoxesTest, HoldEveryPixelOnceAtItsPlaceInTheBox) {
  for (const auto& [images, rows, columns] : kExtents) {
    SCOPED_TRACE(testing::Message() << images << "x" << rows << "x" << columns);
    const PixelBoxes boxes = GetParam()(images, rows, columns);
    EXPECT_EQ(boxes.box_columns() * boxes.box_rows() * boxes.box_images(), PixelBoxes::kPixels);
    std::vector<int> seen(static_cast<size_t>(images * rows * columns));
    for (int box = 0; box < boxes.boxes(); ++box) {
      const PixelBoxes::Pixel corner = boxes.corner(box);
      // As TMA counts: columns first, then rows, then images.
      for (int at = 0; at < PixelBoxes::kPixels; ++at) {
        const int column = corner.column + at % boxes.box_columns();
        const int row = corner.row + at / boxes.box_columns() % boxes.box_rows();
        const int image = corner.image + at / boxes.box_columns() / boxes.box_rows();
        const bool inside = column < columns && row < rows && image < images;
        const int pixel = boxes.pixel(box * PixelBoxes::kPixels + at);
        ASSERT_EQ(pixel, inside ? (image * rows + row) * columns + column : -1) << box << ", " << at;
        if (pixel >= 0) ++seen[static_cast<size_t>(pixel)];
      }
    }
    for (const int times : seen) ASSERT_EQ(times, 1);
    // Tiles below the last one are asked for too.
    EXPECT_EQ(boxes.pixel(static_cast<int>(boxes.boxes()) * PixelBoxes::kPixels), -1);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PixelBoxesTest, testing::Values(pixel_boxes, halo_boxes));

// What the products' layout in LDS takes for granted: 64 pixels are 8 rows of 8.
TEST(HaloBoxes, AreEightColumnsWide) {
  for (const auto& [images, rows, columns] : kExtents) {
    const PixelBoxes boxes = halo_boxes(images, rows, columns);
    EXPECT_EQ(boxes.box_columns(), 8);
    EXPECT_EQ(boxes.box_rows() * boxes.box_images(), 16);
    EXPECT_LE(boxes.box_images(), 2);
  }
  EXPECT_EQ(halo_boxes(2, 8, 8).boxes(), 1);
  EXPECT_EQ(halo_boxes(2, 64, 64).boxes(), 64);
  EXPECT_EQ(halo_boxes(2, 104, 152).boxes(), 247);
}

TEST(PixelBoxes, AreFullWhereThePixelsAllowIt) {
  const auto boxes_of = [](const Extents& e) { return pixel_boxes(e.images, e.rows, e.columns).boxes(); };
  EXPECT_EQ(boxes_of({2, 64, 64}), 64);
  EXPECT_EQ(boxes_of({2, 8, 8}), 1);
  EXPECT_EQ(boxes_of({1, 8, 8}), 1);
  EXPECT_EQ(boxes_of({5, 96, 96}), 360);
  EXPECT_EQ(boxes_of({2, 104, 152}), 247);
  EXPECT_EQ(boxes_of({1, 1024, 1024}), 8192);
}

}  // namespace
}  // namespace rocm_sd
