// conv2d by Winograd's F(2x2, 3x3) on the test's GPU against the double-precision reference on the host, from
// the same rounded operands; its error beside the implicit product's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu_tests/gpu_test.hpp"
#include "kernels/conv/conv2d_winograd_gpu.hpp"
#include "support/conv2d_testing.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

std::vector<double> on_host(const Tensor& t) {
  const std::vector<float> values = to_floats(test_gpu(), t);
  return {values.begin(), values.end()};
}

// The operands on the host and on the GPU, and the reference's result.
struct Prepared {
  ConvOperands host, gpu;
  ConvWeight weight;
  std::vector<double> want;

  Prepared(const ConvCase& c, uint64_t seed, DType dtype = DType::kF16)
      : host(host_device(), c, dtype, seed),
        gpu(test_gpu(), c, dtype, seed),
        weight(gpu.conv_weight(test_gpu(), c)) {
    TestExec test;
    want = to_doubles(reference_conv2d(test.ex, host.x, host.conv_weight(host_device(), c), host.args(c)));
  }
  // By Winograd's kernel or by the implicit product, into NaNs.
  std::vector<double> run(const ConvCase& c, bool winograd = true) const {
    Arena arena(test_gpu());
    Exec ex(arena);
    const Tensor y = make_tensor(test_gpu(), output_of(c), DType::kF16);
    const std::vector<uint16_t> nans(static_cast<size_t>(y.numel()), 0x7fff);
    test_gpu().copy_to_device(y.data(), nans.data(), y.bytes());
    const ConvArgs args = gpu.args(c);
    const ConvProblem problem{gpu.x, weight, args, y};
    if (winograd) {
      const Refusal refusal = conv2d_refuses_winograd(ex, problem);
      EXPECT_FALSE(refusal) << *refusal;
      conv2d_winograd_gpu(ex, problem);
    } else {
      conv2d_gpu_by(ex, problem, conv_default(test_gpu().traits(), conv_extent(problem)));
    }
    return on_host(y);
  }
};

double rms_error(const std::vector<double>& got, const std::vector<double>& want) {
  double sum = 0;
  for (size_t i = 0; i < got.size(); ++i) sum += (got[i] - want[i]) * (got[i] - want[i]);
  return std::sqrt(sum / static_cast<double>(got.size()));
}

TEST(WinogradOnGpu, MatchesTheReference) {
  const std::vector<ConvCase> cases = {
      {{1, 1, 1, 1}, 0, 9},
      {{1, 2, 3, 8}, 0, 64},
      {{1, 16, 16, 32}, 0, 64},                                                   // one workgroup's tiles
      {{2, 11, 13, 40}, 0, 72, 3, 1, Padding::same(1), false, true, true, true},  // tails of everything
      {{3, 5, 9, 70}, 0, 130, 3, 1, Padding::same(1), false, true, false, true, Activation::kSilu},
      {{1, 7, 6, 20}, 0, 33, 3, 1, Padding{}, false, false, true},
      {{1, 6, 5, 24}, 0, 40, 3, 1, Padding{2, 0, 1, 3}, false, true},
      {{1, 9, 34, 64}, 0, 8, 3, 1, Padding::same(1), false, true, true, true, Activation::kGelu, 0, 3},
      {{5, 8, 8, 96}, 0, 64, 3, 1, Padding::same(1), false, true, true, true},
      slope_cases().front(),
      slope_cases().back(),
  };
  uint64_t seed = 1;
  for (const ConvCase& c : cases) {
    const Prepared s(c, seed += 7);
    expect_near(s.run(c), s.want, winograd_tolerance(c.x[3]), describe(c));
  }
}

TEST(WinogradOnGpu, RandomShapesMatchTheReference) {
  std::mt19937 random(22);
  const auto pick = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  for (int i = 0; i < 8; ++i) {
    ConvCase c{{pick(3), pick(17), pick(17), pick(100)}};
    c.out = pick(140);
    c.pad = {static_cast<int>(random() % 3), static_cast<int>(random() % 3), 2, 2};
    c.bias = random() % 2 == 0;
    c.shift = random() % 2 == 0;
    c.residual = random() % 2 == 0;
    c.act = static_cast<Activation>(random() % 5);
    const Prepared s(c, 100 + i);
    expect_near(s.run(c), s.want, winograd_tolerance(c.x[3]), describe(c));
  }
}

// The sums in double precision, unrounded: 3x3, padded by one pixel, without an epilogue.
std::vector<double> exact_conv(const ConvCase& c, const ConvOperands& operands) {
  const std::vector<double> x = to_doubles(operands.x), w = to_doubles(operands.weight);
  const int64_t height = c.x[1], width = c.x[2], channels = c.x[3];
  std::vector<double> out;
  for (int64_t i = 0; i < c.x[0] * height * width; ++i)
    for (int64_t k = 0; k < c.out; ++k) {
      double sum = 0;
      for (int64_t tap = 0; tap < 9; ++tap) {
        const int64_t y = i / width % height + tap / 3 - 1, at = i % width + tap % 3 - 1;
        if (y < 0 || at < 0 || y >= height || at >= width) continue;
        const int64_t pixel = i / (height * width) * height * width + y * width + at;
        for (int64_t channel = 0; channel < channels; ++channel)
          sum += x[static_cast<size_t>(pixel * channels + channel)] *
                 w[static_cast<size_t>((k * channels + channel) * 9 + tap)];
      }
      out.push_back(sum);
    }
  return out;
}

// What the choice of the kernel rests on: its error against double precision stays within fourfold of the
// implicit product's. 3.05 is what independent values give (docs/explanation/winograd.md).
TEST(WinogradOnGpu, ErrsAtMostFourTimesAsMuchAsTheImplicitProduct) {
  for (const int64_t channels : {64, 320}) {
    const ConvCase c{{1, 10, 12, channels}, 0, 64, 3, 1, Padding::same(1), false, false};
    const Prepared s(c, 5);
    const std::vector<double> exact = exact_conv(c, s.host);
    const double winograd = rms_error(s.run(c), exact), implicit = rms_error(s.run(c, false), exact);
    RecordProperty(concat("ratio_", channels), concat(winograd / implicit));
    EXPECT_LT(winograd, 4 * implicit) << channels << " channels: " << winograd << ", " << implicit;
    EXPECT_GT(winograd, implicit) << "the same kernel twice?";
  }
}

// Inputs near the end of f16's range: no transformed value may overflow.
TEST(WinogradOnGpu, TakesLargeInputs) {
  const ConvCase c{{1, 6, 6, 32}, 0, 64, 3, 1, Padding::same(1), false, false};
  Prepared s(c, 9);
  const Tensor large = make_tensor(host_device(), c.x, DType::kF16);
  const Tensor small = make_tensor(host_device(), s.host.weight.shape(), DType::kF16);
  for (int64_t i = 0; i < large.numel(); ++i) store(large.as<Half>()[i], i % 3 ? 60000.0f : -60000.0f);
  for (int64_t i = 0; i < small.numel(); ++i)
    store(small.as<Half>()[i], static_cast<float>(i % 7 - 3) / 1024.0f);
  s.gpu.x = moved(test_gpu(), large);
  s.gpu.weight = moved(test_gpu(), small);
  s.weight = s.gpu.conv_weight(test_gpu(), c);
  s.host.x = large;
  s.host.weight = small;
  TestExec test;
  const std::vector<double> want =
      to_doubles(reference_conv2d(test.ex, large, s.host.conv_weight(host_device(), c), s.host.args(c)));
  expect_near(s.run(c), want, 2 * winograd_tolerance(c.x[3]), "large inputs");
}

TEST(WinogradOnGpu, IsListedForTheTuner) {
  const ConvCase c{{1, 8, 8, 64}, 0, 64};
  const Prepared s(c, 3);
  const CandidateRecord record("conv2d");
  Arena arena(test_gpu());
  Exec ex(arena);
  (void)conv2d(ex, s.gpu.x, s.weight, s.gpu.args(c));
  EXPECT_THAT(record.candidates(), testing::Contains("gpu winograd"));
}

TEST(WinogradOnGpu, RefusesWithASentence) {
  const auto refusal = [](const ConvCase& c, DType dtype = DType::kF16) -> std::string {
    const Prepared s(c, 3, dtype);
    const ForcedImpl only("conv2d", "gpu winograd");
    Arena arena(test_gpu());
    Exec ex(arena);
    try {
      (void)conv2d(ex, s.gpu.x, s.weight, s.gpu.args(c));
    } catch (const UsageError& error) {
      return error.what();
    }
    return "taken";
  };
  using testing::HasSubstr;
  const ConvCase good{{1, 6, 6, 32}, 0, 32};
  EXPECT_EQ(refusal(good), "taken");
  EXPECT_THAT(refusal(good, DType::kBF16), HasSubstr("f16 in and out"));
  ConvCase c = good;
  c.stride = 2;
  EXPECT_THAT(refusal(c), HasSubstr("stride 1"));
  c = good;
  c.filter = 1;
  EXPECT_THAT(refusal(c), HasSubstr("3x3"));
  c = good;
  c.upsample2x = true;
  EXPECT_THAT(refusal(c), HasSubstr("one input"));
  c = good;
  c.second = 32;
  EXPECT_THAT(refusal(c), HasSubstr("one input"));
}

}  // namespace
}  // namespace rocm_sd
