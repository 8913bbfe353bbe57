// Windows of maps against rolls and reshapes in plain loops, and squares of pixels: every type, odd numbers
// of windows, over memory full of NaN; refusals. Their examples run with those of all ops
// (measurement/runner_test.cpp).
#include "kernels/windows/windows.hpp"

#include "kernels/select.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd::testing_support {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
const std::vector<WindowGrid> kGrids = {{8, 8, 8, 4},  {3, 3, 3, 0},   {6, 9, 3, 1},
                                        {15, 5, 5, 2}, {16, 24, 8, 4}, {4, 2, 1, 0}};

// The rows of a map that is rolled, then cut: kinds of windows one after the other.
std::vector<double> cut(const std::vector<double>& x, const WindowGrid& g, int64_t channels) {
  std::vector<double> out;
  for (int kind = 0; kind < 4; ++kind)
    for (int64_t i = 0; i < g.height / g.side; ++i)
      for (int64_t j = 0; j < g.width / g.side; ++j) {
        const bool right = j + 1 == g.width / g.side, lower = i + 1 == g.height / g.side;
        if ((g.shift > 0 ? 2 * lower + right : 0) != kind) continue;
        for (int64_t v = 0; v < g.side; ++v)
          for (int64_t u = 0; u < g.side; ++u) {
            const int64_t y = (i * g.side + v + g.shift) % g.height,
                          column = (j * g.side + u + g.shift) % g.width;
            for (int64_t c = 0; c < channels; ++c)
              out.push_back(x[static_cast<size_t>((y * g.width + column) * channels + c)]);
          }
      }
  return out;
}

TEST(Windows, AreCutAndLaidBack) {
  for (const DType dtype : kTypes)
    for (const WindowGrid& grid : kGrids)
      for (const int64_t channels : {1, 7, 66})
        for (const char* impl : {"scalar", "ref"}) {
          const ForcedImpl first("window_partition", impl), second("window_reverse", impl);
          TestExec test;
          const Tensor x = random_tensor({1, grid.height, grid.width, channels}, dtype, 3);
          const Tensor y = window_partition(test.ex, x, grid);
          EXPECT_EQ(y.shape(), (Shape{grid.windows(), grid.side * grid.side, channels}));
          EXPECT_EQ(to_doubles(y), cut(to_doubles(x), grid, channels)) << impl << " " << grid.shift;
          const Tensor residual = random_tensor(x.shape(), dtype, 4);
          std::vector<double> want = to_doubles(residual);
          const std::vector<double> added = to_doubles(x);
          for (size_t i = 0; i < want.size(); ++i) want[i] += added[i];
          expect_tensor_near(window_reverse(test.ex, y, residual, grid), want, 2 * unit_roundoff(dtype),
                             impl);
        }
}

TEST(Windows, OfEachKindAreCounted) {
  for (const WindowGrid& grid : kGrids) {
    int64_t all = 0;
    for (int kind = 0; kind < 4; ++kind) all += grid.windows_of(kind);
    EXPECT_EQ(all, grid.windows());
    EXPECT_EQ(grid.windows_of(3), grid.shift > 0 ? 1 : 0);
  }
}

TEST(PixelShuffle, ChannelsBecomeSquares) {
  for (const DType dtype : kTypes)
    for (const int64_t side : {1, 2, 3})
      for (const char* impl : {"scalar", "ref"}) {
        const ForcedImpl only("pixel_shuffle", impl);
        TestExec test;
        const int64_t h = 5, w = 3, channels = 7;
        const Tensor x = random_tensor({1, h, w, channels * side * side}, dtype, 3);
        const std::vector<double> in = to_doubles(x);
        std::vector<double> want;
        for (int64_t v = 0; v < h * side; ++v)
          for (int64_t u = 0; u < w * side; ++u)
            for (int64_t c = 0; c < channels; ++c)
              want.push_back(in[static_cast<size_t>(((v / side * w + u / side) * channels + c) * side * side +
                                                    v % side * side + u % side)]);
        EXPECT_EQ(to_doubles(pixel_shuffle(test.ex, x, side)), want) << impl << " " << side;
      }
}

TEST(Windows, RefusesOtherShapesAndTypes) {
  TestExec test;
  const auto f32 = [](const Shape& shape) { return random_tensor(shape, DType::kF32, 1); };
  const WindowGrid grid{8, 8, 4, 2};
  EXPECT_THROW(window_partition(test.ex, f32({1, 8, 12, 3}), grid), ShapeError);
  EXPECT_THROW(window_partition(test.ex, f32({1, 8, 9, 3}), {8, 9, 4, 2}), ShapeError);
  EXPECT_THROW(window_partition(test.ex, f32({1, 8, 8, 3}), {8, 8, 4, 4}), ShapeError);
  EXPECT_THROW(window_reverse(test.ex, f32({4, 16, 3}), f32({1, 8, 8, 4}), grid), ShapeError);
  EXPECT_THROW(window_reverse(test.ex, random_tensor({4, 16, 3}, DType::kF16, 1), f32({1, 8, 8, 3}), grid),
               ShapeError);
  EXPECT_THROW(pixel_shuffle(test.ex, f32({1, 8, 8, 6}), 2), ShapeError);
}

}  // namespace rocm_sd::testing_support
