// The denoiser: prediction types, scaling, guidance, and bad input.
#include "schedulers/denoiser.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

using testing_support::expect_tensor_near;
using testing_support::random_tensor;
using testing_support::TestExec;
using testing_support::to_doubles;

const Shape kShape = {2, 3, 5, 4};

// What a perfect model would return for clean latents and noise at a level.
Tensor perfect_output(Exec& ex, Prediction prediction, const Tensor& clean, const Tensor& noise,
                      double alpha_bar) {
  const double signal = std::sqrt(alpha_bar), spread = std::sqrt(1 - alpha_bar);
  switch (prediction) {
    case Prediction::kEpsilon: return linear_combination(ex, {{1, noise}});
    case Prediction::kV: return linear_combination(ex, {{signal, noise}, {-spread, clean}});
    case Prediction::kSample: break;
  }
  return linear_combination(ex, {{1, clean}});
}

TEST(Denoiser, FindsTheCleanLatentsOfAPerfectModel) {
  TestExec test;
  const Tensor clean = random_tensor(kShape, DType::kF32, 1), noise = random_tensor(kShape, DType::kF32, 2);
  const NoiseSchedule schedule;
  for (const Prediction prediction : {Prediction::kEpsilon, Prediction::kV, Prediction::kSample})
    for (const LatentSpace space : {LatentSpace::kVarianceExploding, LatentSpace::kVariancePreserving})
      for (const int t : {0, 10, 500, 999}) {
        const NoiseLevel level = level_of_timestep(schedule, t);
        const bool exploding = space == LatentSpace::kVarianceExploding;
        const double signal = std::sqrt(level.alpha_bar), spread = std::sqrt(1 - level.alpha_bar);
        const Tensor x = linear_combination(
            test.ex, {{exploding ? 1 : signal, clean}, {exploding ? level.sigma : spread, noise}});
        const Denoiser denoiser(
            [&](Exec& ex, const Tensor& input, double timestep) {
              EXPECT_EQ(timestep, t);
              // In either space the model sees the variance-preserving latents.
              std::vector<double> want;
              const auto c = to_doubles(clean), n = to_doubles(noise);
              for (size_t i = 0; i < c.size(); ++i) want.push_back(signal * c[i] + spread * n[i]);
              expect_tensor_near(input, want, 1e-6);
              return perfect_output(ex, prediction, clean, noise, level.alpha_bar);
            },
            {.prediction = prediction, .cfg_scale = 1});
        EXPECT_EQ(denoiser.conditions(), 1);
        // Epsilon at t = 999: x0 = (x - 0.998 * epsilon) / 0.068 magnifies rounding by 15.
        expect_tensor_near(denoiser(test.ex, x, level, space), to_doubles(clean), 1e-5);
      }
}

TEST(Denoiser, GuidesInOneBatch) {
  TestExec test;
  const Tensor x = random_tensor(kShape, DType::kF32, 3);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    int calls = 0;
    const Denoiser denoiser(
        [&](Exec&, const Tensor& input, double) {
          ++calls;
          EXPECT_EQ(input.shape(), (Shape{4, 3, 5, 4}));
          EXPECT_EQ(input.dtype(), dtype);
          return random_tensor(input.shape(), dtype, 4);
        },
        {.prediction = Prediction::kSample, .cfg_scale = 3, .input_dtype = dtype});
    EXPECT_EQ(denoiser.guidance(), Guidance::kPrompt);
    const auto output = to_doubles(random_tensor({4, 3, 5, 4}, dtype, 4));
    std::vector<double> want;
    for (size_t i = 0; i < output.size() / 2; ++i)
      want.push_back(output[i] + 3 * (output[i + output.size() / 2] - output[i]));
    expect_tensor_near(denoiser(test.ex, x, {1, 0.5, 100}, LatentSpace::kVarianceExploding), want, 1e-6);
    EXPECT_EQ(calls, 1);
  }
}

TEST(Denoiser, GuidesByImageAndText) {
  TestExec test;
  const Tensor x = random_tensor(kShape, DType::kF32, 3);
  const Denoiser denoiser(
      [&](Exec&, const Tensor& input, double) { return random_tensor(input.shape(), DType::kF32, 4); },
      {.prediction = Prediction::kSample, .cfg_scale = 7, .image_cfg_scale = 1.5, .instruct = true});
  EXPECT_EQ(denoiser.conditions(), 3);
  const auto o = to_doubles(random_tensor({6, 3, 5, 4}, DType::kF32, 4));
  const size_t n = o.size() / 3;
  std::vector<double> want;  // Brooks et al. 2023, equation 3
  for (size_t i = 0; i < n; ++i)
    want.push_back(o[i] + 1.5 * (o[i + n] - o[i]) + 7 * (o[i + 2 * n] - o[i + n]));
  expect_tensor_near(denoiser(test.ex, x, {1, 0.5, 100}, LatentSpace::kVarianceExploding), want, 1e-6);
}

// Once for all conditions, once for the first alone: 1.5 calls of the UNet where there are two.
TEST(Denoiser, SelfAttentionGuidanceRunsTheFirstConditionAgain) {
  TestExec test;
  const Tensor x = random_tensor(kShape, DType::kF32, 3);
  const NoiseLevel level = {2, 0.2, 100};
  for (const bool perturbed : {false, true})
    for (const double scale : {1.0, 3.0})
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        std::vector<int64_t> rows;
        Tensor asked;
        const SelfAttentionGuidance sag{4,
                                        [&](Exec& ex, const Tensor& clean) {
                                          asked = linear_combination(ex, {{1, clean}});
                                          return random_tensor(clean.shape(), DType::kF32, 9);
                                        },
                                        [&](Exec&, const Tensor& input, double timestep) {
                                          EXPECT_EQ(timestep, 100);
                                          EXPECT_EQ(input.dtype(), dtype);
                                          rows.push_back(input.dim(0));
                                          return random_tensor(input.shape(), dtype, 8);
                                        }};
        const Denoiser denoiser(
            [&](Exec&, const Tensor& input, double) {
              rows.push_back(input.dim(0));
              return random_tensor(input.shape(), dtype, 4);
            },
            {.prediction = Prediction::kSample,
             .cfg_scale = scale,
             .pag_scale = perturbed ? 2.0 : 0.0,
             .self_attention = sag,
             .input_dtype = dtype});
        const int conditions = (scale == 1 ? 1 : 2) + (perturbed ? 1 : 0);
        ASSERT_EQ(denoiser.conditions(), conditions);
        const Tensor got = denoiser(test.ex, x, level, LatentSpace::kVarianceExploding);
        EXPECT_EQ(rows, (std::vector<int64_t>{2 * conditions, 2}));
        const auto all = to_doubles(random_tensor({2 * conditions, 3, 5, 4}, dtype, 4)),
                   again = to_doubles(random_tensor(kShape, dtype, 8));
        const size_t n = again.size();
        std::vector<double> want;
        for (size_t i = 0; i < n; ++i) {
          const double first = all[i], text = scale == 1 ? first : first + scale * (all[i + n] - first);
          const size_t last = n * static_cast<size_t>(conditions - 1) + i;
          want.push_back(text + (perturbed ? 2 * (all[last - n] - all[last]) : 0) + 4 * (first - again[i]));
        }
        expect_tensor_near(got, want, 1e-5);
        expect_tensor_near(asked, std::vector<double>(all.begin(), all.begin() + static_cast<int64_t>(n)),
                           1e-6);
      }
}

TEST(Denoiser, ZeroTerminalSnrNeedsVPrediction) {
  TestExec test;
  const Tensor x = random_tensor(kShape, DType::kF32, 3);
  const NoiseLevel level = level_of_timestep(NoiseSchedule({.zero_terminal_snr = true}), 999);
  const auto identity = [](Exec& ex, const Tensor& input, double) {
    return linear_combination(ex, {{1, input}});
  };
  const Denoiser v(identity, {.prediction = Prediction::kV, .cfg_scale = 1});
  std::vector<double> want;
  for (const double value : to_doubles(x)) want.push_back(-value);
  expect_tensor_near(v(test.ex, x, level, LatentSpace::kVariancePreserving), want, 1e-6);
  const Denoiser epsilon(identity, {.cfg_scale = 1});
  EXPECT_THROW(epsilon(test.ex, x, level, LatentSpace::kVariancePreserving), UsageError);
  EXPECT_NO_THROW(epsilon(test.ex, x, level, LatentSpace::kVarianceExploding));  // its sigma is capped
}

TEST(Denoiser, RefusesBadInput) {
  const auto refused = [](const DenoiserArgs& args) {
    EXPECT_THROW(Denoiser([](Exec&, const Tensor& x, double) { return x; }, args), UsageError);
  };
  refused({.cfg_scale = NAN});
  refused({.cfg_scale = INFINITY});
  refused({.image_cfg_scale = NAN});
  refused({.guidance_rescale = -0.1});
  refused({.guidance_rescale = 1.1});
  refused({.guidance_rescale = NAN});
  refused({.instruct = true, .guidance_rescale = 0.5});
  TestExec test;
  const Denoiser wrong([](Exec&, const Tensor& x, double) { return x.narrow(0, 0, 1); }, {});
  EXPECT_THROW(
      wrong(test.ex, random_tensor(kShape, DType::kF32, 1), {1, 0.5, 1}, LatentSpace::kVarianceExploding),
      ShapeError);
  const auto same = [](Exec&, const Tensor& x) { return x; };
  const Denoiser all_again([](Exec&, const Tensor& x, double) { return x; },
                           {.self_attention = {1, same, [](Exec&, const Tensor& x, double) {
                                                 return random_tensor({2 * x.dim(0), 3, 5, 4}, DType::kF32,
                                                                      1);
                                               }}});
  EXPECT_THROW(
      all_again(test.ex, random_tensor(kShape, DType::kF32, 1), {1, 0.5, 1}, LatentSpace::kVarianceExploding),
      ShapeError);
  EXPECT_EQ(parse_prediction("v_prediction"), Prediction::kV);
  EXPECT_EQ(parse_prediction("EPSILON"), Prediction::kEpsilon);
  EXPECT_EQ(parse_prediction("sample"), Prediction::kSample);
  EXPECT_THROW(parse_prediction("flow"), UsageError);
}

}  // namespace
}  // namespace rocm_sd
