// Windows of maps and squares of pixels on the GPU against the reference, to the bit where they are copies.
#include "kernels/windows/windows.hpp"

#include <gtest/gtest.h>

#include "gpu_tests/against_reference.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

TEST(GpuWindows, AreCutLaidBackAndShuffled) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32})
    for (const WindowGrid& grid : {WindowGrid{8, 8, 8, 4}, WindowGrid{6, 9, 3, 1}, WindowGrid{8, 16, 8, 0}})
      for (const int64_t channels : {1, 60, 183}) {
        const Tensor x = random_tensor({1, grid.height, grid.width, channels}, dtype, 3);
        const Tensor windows = random_tensor({grid.windows(), grid.side * grid.side, channels}, dtype, 4);
        const PlacedOp cut = [&](Exec& ex, const Place& place) {
          return window_partition(ex, place(x), grid);
        };
        const PlacedOp back = [&](Exec& ex, const Place& place) {
          return window_reverse(ex, place(windows), place(x), grid);
        };
        EXPECT_EQ(on_gpu("window_partition", cut), on_host("window_partition", cut))
            << dtype_name(dtype) << " " << channels;
        expect_like_reference("window_reverse", back, 2 * unit_roundoff(dtype), concat(dtype, " ", channels));
        expect_same_bits_as_graph(back, concat(dtype));
      }
  for (const DType dtype : {DType::kF16, DType::kF32}) {
    const Tensor x = random_tensor({1, 5, 7, 9 * 21}, dtype, 5);
    const PlacedOp op = [&](Exec& ex, const Place& place) { return pixel_shuffle(ex, place(x), 3); };
    EXPECT_EQ(on_gpu("pixel_shuffle", op), on_host("pixel_shuffle", op)) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace rocm_sd
