// Run-time LoRAs on a GPU against the same merged into f32 weights on the host.
#include "models/low_rank.hpp"

#include <gtest/gtest.h>

#include "gpu_tests/gpu_test.hpp"
#include "support/low_rank_testing.hpp"

namespace rocm_sd {
namespace {

using testing_support::LowRankUNet;
using testing_support::merged_output;
using testing_support::random_adapter;
using testing_support::RandomSource;
using testing_support::relative_error;

struct Case {
  DType dtype;
  DType eight_bit = DType::kF32;
};

class LowRankGpuTest : public testing::TestWithParam<Case> {};

// Two LoRAs, one on each image, then both on both without a new plan. The error may be a few times that of
// the plain model in this type, and that of the terms: x, both factors and the states between them are
// rounded once each, which is twice the type's roundoff (the root of four) of what the LoRAs change.
TEST_P(LowRankGpuTest, IsAsMerged) {
  const RandomSource source;
  const WeightFormat weights{.eight_bit = GetParam().eight_bit};
  LowRankUNet model(test_gpu(), GetParam().dtype, source, weights);
  const auto plain = model.run();
  const double rounding = relative_error(plain, merged_output(host_device(), DType::kF32, {}));
  const auto bound = [&](const std::vector<double>& want) {
    return 3 * rounding + 1e-4 +
           2 * testing_support::unit_roundoff(GetParam().dtype) * relative_error(plain, want);
  };
  const auto parts = list_parameters(model.unet);
  const auto first = random_adapter(parts, 3, 1), second = random_adapter(parts, 40, 2000);
  const auto strengths = std::make_shared<RowStrengths>(test_gpu());
  model.set_terms({first, second}, strengths);
  model.prepare.plan();
  model.step.plan();
  const auto of_first = merged_output(host_device(), DType::kF32, {{first, 0.9}});
  const auto of_second = merged_output(host_device(), DType::kF32, {{second, -0.6}});
  const auto of_both = merged_output(host_device(), DType::kF32, {{first, 0.4}, {second, 0.8}});
  for (int i = 0; i < 2; ++i) {  // the second one replays what the first one captured
    strengths->set({{0.9f, 0}, {0, -0.6f}});
    const auto got = model.run();
    EXPECT_GT(relative_error(plain, of_first, 0), 2 * bound(of_first)) << "the LoRA changes too little";
    EXPECT_LT(relative_error(got, of_first, 0), bound(of_first));
    EXPECT_LT(relative_error(got, of_second, 1), bound(of_second));
    strengths->set({{0.4f, 0.8f}, {0.4f, 0.8f}});
    EXPECT_LT(relative_error(model.run(), of_both), bound(of_both));
  }
  model.set_terms({}, nullptr);
  model.prepare.plan();
  model.step.plan();
  EXPECT_EQ(model.run(), plain);
}

// The same where all rows have the same strengths and weights are changed in the memory of the run; then by
// terms again.
TEST_P(LowRankGpuTest, ChangedWeightsAreAsMerged) {
  const RandomSource source;
  LowRankUNet model(test_gpu(), GetParam().dtype, source, {.eight_bit = GetParam().eight_bit});
  const auto plain = model.run();
  const double rounding = relative_error(plain, merged_output(host_device(), DType::kF32, {}));
  const auto parts = list_parameters(model.unet);
  const auto first = random_adapter(parts, 3, 1), second = random_adapter(parts, 40, 2000);
  const auto strengths = std::make_shared<RowStrengths>(test_gpu());
  model.set_terms({first, second}, strengths);
  model.prepare.plan();
  model.step.plan();
  const size_t of_terms = model.step.problems().size();
  const auto check = [&](float a, float b) {
    strengths->set({{a, b}, {a, b}});
    const auto want = merged_output(host_device(), DType::kF32, {{first, a}, {second, b}});
    const double bound = 3 * rounding + 1e-4 +
                         2 * testing_support::unit_roundoff(GetParam().dtype) * relative_error(plain, want);
    EXPECT_LT(relative_error(model.run(), want), bound) << a << " " << b;
  };
  strengths->set_alike(true);
  model.prepare.plan();
  model.step.plan();
  if (GetParam().eight_bit == DType::kF32)
    EXPECT_NE(model.step.problems().size(), of_terms) << "no weight was changed";
  check(0.9f, 0);
  check(0.4f, 0.8f);  // replays
  check(0, -0.6f);
  strengths->set_alike(false);
  model.prepare.plan();
  model.step.plan();
  check(0.4f, 0.8f);
  EXPECT_EQ(model.step.problems().size(), of_terms);
}

TEST(LowRankGpu, RowsThatWereToBeAlike) {
  RowStrengths strengths(test_gpu());
  strengths.set_alike(true);
  strengths.set({{1, 2}, {1, 2}});
  EXPECT_THROW(strengths.set({{1, 2}, {1, 3}}), InternalError);
  EXPECT_EQ(strengths.rows()[1][1], 2);
}

INSTANTIATE_TEST_SUITE_P(Types, LowRankGpuTest,
                         testing::Values(Case{DType::kF16}, Case{DType::kBF16}, Case{DType::kF32},
                                         Case{DType::kF16, DType::kI8}),
                         [](const auto& info) {
                           return std::string(dtype_name(info.param.dtype)) +
                                  (info.param.eight_bit == DType::kI8 ? "_int8" : "");
                         });

}  // namespace
}  // namespace rocm_sd
