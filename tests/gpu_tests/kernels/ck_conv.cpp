// conv2d by Composable Kernel against the double-precision reference on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/format.hpp"
#include "gpu_tests/against_reference.hpp"
#include "kernels/conv/conv2d.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

struct Case {
  int64_t batch, height, width, channels, outputs, filter;
  int stride = 1;
  Padding pad;
  bool residual = false;
  Activation act = Activation::kNone;
  bool bias = true, shift = false, upsample2x = false;
};

struct Operands {
  Tensor x, weight, bias, residual, shift;
  Operands(const Case& c, DType dtype, uint64_t seed) {
    const int64_t depth = c.filter * c.filter * c.channels, scale = c.upsample2x ? 2 : 1;
    const int64_t out_h = (scale * c.height + c.pad.top + c.pad.bottom - c.filter) / c.stride + 1;
    const int64_t out_w = (scale * c.width + c.pad.left + c.pad.right - c.filter) / c.stride + 1;
    x = random_tensor({c.batch, c.height, c.width, c.channels}, dtype, seed);
    weight = random_tensor({c.outputs, c.channels, c.filter, c.filter}, dtype, seed + 1,
                           1 / std::sqrt(static_cast<float>(depth)));
    bias = random_tensor({c.outputs}, DType::kF32, seed + 2);
    residual = random_tensor({c.batch, out_h, out_w, c.outputs}, dtype, seed + 3);
    shift = random_tensor({c.batch, c.outputs}, DType::kF32, seed + 4);
  }
  Tensor run(const Case& c, Exec& ex, const Place& place) const {
    ConvWeight w{Weight(place(weight)), std::nullopt};
    if (c.bias) w.bias = place(bias);
    Tensor addend, moved;
    if (c.residual) addend = place(residual);
    if (c.shift) moved = place(shift);
    ConvArgs args{.stride = c.stride, .pad = c.pad, .upsample2x = c.upsample2x};
    args.epilogue.residual = c.residual ? &addend : nullptr;
    args.epilogue.channel_shift = c.shift ? &moved : nullptr;
    args.epilogue.act = c.act;
    return conv2d(ex, place(x), w, args);
  }
};

// "ck" by name: a refusal throws, so that no problem here goes untested.
std::vector<double> by_ck(const PlacedOp& op) {
  GpuTestExec gpu;
  const ForcedImpl forced("conv2d", "ck");
  const Tensor y = op(gpu.ex, [&](const Tensor& x) { return gpu.to_gpu(x); });
  const std::vector<float> values = to_floats(gpu.device, y);
  return {values.begin(), values.end()};
}

class CkConvTest : public testing::TestWithParam<DType> {};

TEST_P(CkConvTest, MatchesTheReference) {
  const std::vector<Case> cases = {
      {1, 8, 16, 32, 128, 3, 1, Padding::same(1)},                               // a whole tile
      {2, 9, 7, 40, 136, 3, 1, Padding::same(1), true},                          // tails of everything
      {1, 13, 10, 64, 72, 3, 2, Padding{0, 0, 1, 1}, false, Activation::kSilu},  // the encoder's step down
      {2, 5, 6, 160, 8, 1, 1, {}, true, Activation::kRelu},                      // 1x1
      {1, 6, 6, 16, 24, 5, 1, Padding{2, 1, 0, 3}, false, Activation::kNone},    // uneven pads
  };
  uint64_t seed = 1;
  for (const Case& c : cases) {
    const Operands operands(c, GetParam(), seed += 10);
    const PlacedOp op = [&](Exec& ex, const Place& place) { return operands.run(c, ex, place); };
    expect_near(by_ck(op), on_host("conv2d", op),
                reduction_tolerance(GetParam(), c.filter * c.filter * c.channels),
                fmt::format("{}x{}x{}x{}->{} {}x{}", c.batch, c.height, c.width, c.channels, c.outputs,
                            c.filter, c.filter));
  }
}
INSTANTIATE_TEST_SUITE_P(Types, CkConvTest, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& info) { return concat(info.param); });

TEST(CkConv, IsListedForTheTuner) {
  GpuTestExec gpu;
  const Case c{1, 8, 8, 64, 64, 3, 1, Padding::same(1)};
  const Operands operands(c, DType::kF16, 5);
  const CandidateRecord record("conv2d");
  operands.run(c, gpu.ex, [&](const Tensor& x) { return gpu.to_gpu(x); });
  EXPECT_THAT(record.candidates(), testing::Contains("ck"));
  EXPECT_NE(record.candidates().front(), "ck") << "our own kernels come first";
}

TEST(CkConv, RefusesWithASentence) {
  const auto refusal = [](Case c, DType dtype) {
    const Operands operands(c, dtype, 9);
    try {
      by_ck([&](Exec& ex, const Place& place) { return operands.run(c, ex, place); });
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  using testing::HasSubstr;
  const Case good{1, 8, 8, 64, 64, 3, 1, Padding::same(1)};
  Case c = good;
  EXPECT_THAT(refusal(c, DType::kF32), HasSubstr("16-bit types only"));
  c.bias = false;
  EXPECT_THAT(refusal(c, DType::kF16), HasSubstr("without a bias"));
  c = good;
  c.shift = true;
  EXPECT_THAT(refusal(c, DType::kF16), HasSubstr("shift"));
  c = good;
  c.upsample2x = true;
  EXPECT_THAT(refusal(c, DType::kF16), HasSubstr("one input"));
  c = good;
  c.act = Activation::kGelu;
  EXPECT_THAT(refusal(c, DType::kF16), HasSubstr("activation"));
  c = good;
  c.channels = 12;
  EXPECT_THAT(refusal(c, DType::kF16), HasSubstr("16-byte pieces"));
  c = good;
  c.filter = 1;
  c.pad = {};
  EXPECT_THAT(refusal(c, DType::kF16), HasSubstr("fewer than"));
}

}  // namespace
}  // namespace rocm_sd
