// resample on the GPU against the reference: every mode, packs of 8, 4 and 1 channels.
#include "kernels/resample/resample.hpp"

#include <gtest/gtest.h>

#include "base/format.hpp"
#include "gpu_tests/against_reference.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

class GpuResampleTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, GpuResampleTest, testing::Values(DType::kF16, DType::kBF16, DType::kF32),
                         [](const auto& info) { return fmt::format("{}", info.param); });

TEST_P(GpuResampleTest, MatchesReference) {
  const DType dtype = GetParam();
  for (const ResampleMode mode : {ResampleMode::kNearest, ResampleMode::kBilinear, ResampleMode::kBicubic,
                                  ResampleMode::kArea, ResampleMode::kLanczos3})
    for (const auto& [shape, height, width] : {std::tuple{Shape{1, 1, 1, 1}, 1, 1},
                                               {Shape{1, 1, 1, 3}, 4, 5},
                                               {Shape{2, 9, 13, 3}, 4, 31},
                                               {Shape{1, 16, 12, 17}, 7, 5},
                                               {Shape{1, 7, 5, 32}, 7, 5},
                                               {Shape{0, 4, 4, 2}, 3, 3},
                                               {Shape{2, 8, 6, 40}, 16, 12},
                                               {Shape{1, 33, 2, 4}, 1, 1},
                                               {Shape{1, 100, 3, 4}, 7, 200}}) {
      const Tensor x = random_tensor(shape, dtype, 9);
      // Weights sum to one in magnitude 1.5 or less per axis; at most 90 inputs of an output.
      expect_like_reference(
          "resample",
          [&, height = height, width = width](Exec& ex, const Place& place) {
            return resample(ex, place(x), height, width, mode);
          },
          reduction_tolerance(dtype, 100), concat(dtype, " ", shape, " mode ", static_cast<int>(mode)));
    }
}

TEST_P(GpuResampleTest, RunsInAGraph) {
  const Tensor x = random_tensor({1, 20, 30, 8}, GetParam(), 9);
  expect_same_bits_as_graph(
      [&](Exec& ex, const Place& place) { return resample(ex, place(x), 33, 17, ResampleMode::kLanczos3); });
}

}  // namespace
}  // namespace rocm_sd
