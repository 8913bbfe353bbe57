// Run-time LoRAs on a GPU against the same merged into f32 weights on the host.
#include "models/low_rank.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "gpu_tests/gpu_test.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "runtime/exec.hpp"
#include "support/low_rank_testing.hpp"
#include "support/tensor_testing.hpp"

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

// A layer that changes its weight for many rows and keeps its terms for few, in two programs, as the calls of
// self-attention guidance are and the passes of a hires fix: what the second one reads outlives its planning.
TEST(LowRankGpu, CallsOfManyAndOfFewRows) {
  GpuDevice& gpu = test_gpu();
  const int64_t in = 64, out = 96, rank = 32, many = 200, few = 8;
  const auto on_gpu = [&](const Tensor& t) {
    const Tensor copy = make_tensor(gpu, t.shape(), t.dtype());
    gpu.copy_to_device(copy.data(), t.data(), t.bytes());
    return copy;
  };
  const auto random = [](const Shape& shape, uint64_t seed, float scale) {
    return testing_support::random_tensor(shape, DType::kF16, seed, scale);
  };
  const Tensor w = random({out, in}, 1, 0.125f), down = random({rank, in}, 2, 0.125f),
               up = random({out, rank}, 3, 0.15f), x = random({1, many, in}, 4, 1);
  const auto terms = std::make_shared<LowRank>();
  terms->down = Weight(on_gpu(down));
  terms->up = Weight(on_gpu(up));
  terms->columns = {0};
  terms->step = rank;
  terms->strengths = std::make_shared<RowStrengths>(gpu);
  terms->strengths->set_alike(true);
  terms->strengths->set({{0.75f}});
  const LinearWeight layer{Weight(on_gpu(w)), std::nullopt};
  const Tensor gpu_x = on_gpu(x), of_many = make_tensor(gpu, {1, many, out}, DType::kF32),
               of_few = make_tensor(gpu, {1, few, out}, DType::kF32);
  Arena arena(gpu);
  const auto call = [&](int64_t rows, const Tensor& to) {
    return [&, rows, to](Exec& ex) {
      copy_into(ex, linear_with_terms(ex, gpu_x.narrow(1, 0, rows), layer, terms.get()), to);
    };
  };
  Program first("many rows", arena, call(many, of_many)), second("few rows", arena, call(few, of_few));
  std::vector<Tensor> others;  // in the memory that nobody holds any more
  for (int i = 0; i < 3; ++i) {
    first.run();
    second.run();
    for (int k = 0; k < 8; ++k) {
      const std::vector<uint16_t> nans(static_cast<size_t>(rank * in), 0x7fff);
      others.push_back(make_tensor(gpu, {rank, in}, DType::kF16));
      gpu.copy_to_device(others.back().data(), nans.data(), others.back().bytes());
    }
  }
  const auto values = [](const Tensor& t) { return to_floats(host_device(), t); };
  const std::vector<float> hx = values(x), hw = values(w), hd = values(down), hu = values(up);
  std::vector<double> want;
  for (int64_t row = 0; row < many; ++row)
    for (int64_t c = 0; c < out; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < in; ++k) {
        double weight = hw[static_cast<size_t>(c * in + k)];
        for (int64_t r = 0; r < rank; ++r)
          weight += 0.75 * hu[static_cast<size_t>(c * rank + r)] * hd[static_cast<size_t>(r * in + k)];
        sum += weight * hx[static_cast<size_t>(row * in + k)];
      }
      want.push_back(sum);
    }
  const auto near = [&](const Tensor& got, const char* what) {
    const std::vector<float> y = to_floats(gpu, got);
    testing_support::expect_near({y.begin(), y.end()}, {want.begin(), want.begin() + std::ssize(y)},
                                 2 * testing_support::reduction_tolerance(DType::kF16, in), what);
  };
  near(of_many, "many");
  near(of_few, "few");
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
