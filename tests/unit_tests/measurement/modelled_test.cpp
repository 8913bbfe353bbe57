// How a model sees the outputs of workloads. What it chooses: tests/integration_tests/test_tune.py.
#include "measurement/modelled.hpp"

#include <gtest/gtest.h>

namespace rocm_sd::measurement {
namespace {

TEST(Modelled, OutputsAreMatrices) {
  const OutputExtent linear = parse_workload("linear", "154x640x2048 f16 bias").extent;
  EXPECT_EQ(linear.rows, 154);
  EXPECT_EQ(linear.columns, 640);
  EXPECT_EQ(parse_workload("linear", "128x10240x1280 f16 bias geglu").extent.columns, 10240);
  const OutputExtent conv = parse_workload("conv2d", "2x64x64x320->640 3x3 s2 p1,1,1,1 f16 bias").extent;
  EXPECT_EQ(conv.rows, 2 * 32 * 32);
  EXPECT_EQ(conv.columns, 640);
  const OutputExtent attention = parse_workload("attention", "f16 [2,8,4096x77,40]").extent;
  EXPECT_EQ(attention.copies, 16);
  EXPECT_EQ(attention.rows, 4096);
  EXPECT_EQ(attention.columns, 40);
}

}  // namespace
}  // namespace rocm_sd::measurement
