// sample_posterior against its formula in double; the clamp; refusals.
#include "kernels/step/posterior.hpp"

#include <gtest/gtest.h>

#include "support/implementations.hpp"

namespace rocm_sd {
namespace {

using testing_support::random_tensor;

TEST(SamplePosterior, MatchesTheFormula) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const char* impl : {"scalar", "ref"}) {
      const ForcedImpl forced("sample_posterior", impl);
      testing_support::TestExec test;
      const Tensor moments = random_tensor({2, 3, 1, 8}, dtype, 1, 20);  // log variances beyond both clamps
      const Tensor noise = random_tensor({2, 3, 1, 4}, DType::kF32, 2);
      const auto in = testing_support::to_doubles(moments), random = testing_support::to_doubles(noise);
      const auto got = testing_support::to_doubles(sample_posterior(test.ex, moments, &noise));
      const auto mode = testing_support::to_doubles(sample_posterior(test.ex, moments, nullptr));
      for (size_t i = 0; i < got.size(); ++i) {
        const double mean = in[i / 4 * 8 + i % 4], log_variance = in[i / 4 * 8 + 4 + i % 4];
        const double want = mean + std::exp(0.5 * std::clamp(log_variance, -30.0, 20.0)) * random[i];
        // exp has a relative error of a few roundoffs at an argument rounded to float: |x| + 4 of them.
        EXPECT_NEAR(got[i], want, 16 * 0x1p-24 * (std::fabs(want) + std::fabs(want - mean)) + 1e-30) << i;
        EXPECT_EQ(mode[i], mean);
      }
    }
}

TEST(SamplePosterior, RefusesWhatDoesNotFit) {
  testing_support::TestExec test;
  const Tensor moments = random_tensor({1, 2, 2, 8}, DType::kF32, 1);
  const Tensor noise = random_tensor({1, 2, 2, 8}, DType::kF32, 2);
  EXPECT_THROW(sample_posterior(test.ex, moments, &noise), ShapeError);
  EXPECT_THROW(sample_posterior(test.ex, random_tensor({1, 2, 2, 7}, DType::kF32, 1), nullptr), ShapeError);
}

}  // namespace
}  // namespace rocm_sd
