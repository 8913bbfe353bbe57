// row_range against its formula; rows of one value; refusals. Its example runs with those of all ops
// (measurement/runner_test.cpp).
#include "kernels/row_range/row_range.hpp"

#include <algorithm>

#include "kernels/select.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd::testing_support {

TEST(RowRange, ScalarAndReferenceAreTheFormula) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{0, 3}, {1, 1}, {3, 67}, {130, 5}, {2, 4099}})
    for (const char* impl : {"scalar", "ref"}) {
      const ForcedImpl only("row_range", impl);
      TestExec test;
      const Tensor x = random_tensor({rows, cols}, DType::kF32, 3);
      const std::vector<double> in = to_doubles(x);
      std::vector<double> want;
      for (int64_t row = 0; row < rows; ++row) {
        const auto begin = in.begin() + row * cols;
        const auto [least, most] = std::minmax_element(begin, begin + cols);
        for (int64_t i = 0; i < cols; ++i)
          want.push_back(cols == 1 ? 0 : -0.5 * (begin[i] - *least) / (*most - *least));
      }
      expect_tensor_near(row_range(test.ex, x, -0.5f), want, 8 * unit_roundoff(DType::kF32), impl);
    }
}

TEST(RowRange, RowsOfOneValueAreZero) {
  for (const char* impl : {"scalar", "ref"}) {
    const ForcedImpl only("row_range", impl);
    TestExec test;
    const std::vector<float> values(6, -3.25f);
    const Tensor y = row_range(test.ex, tensor_from(test.device, {2, 3}, values.data()), 2);
    for (const double v : to_doubles(y)) EXPECT_EQ(v, 0) << impl;
  }
}

TEST(RowRange, RefusesOtherShapesAndTypes) {
  TestExec test;
  EXPECT_THROW(row_range(test.ex, random_tensor({6}, DType::kF32, 1), 1), ShapeError);
  EXPECT_THROW(row_range(test.ex, random_tensor({2, 3}, DType::kF16, 1), 1), ShapeError);
}

}  // namespace rocm_sd::testing_support
