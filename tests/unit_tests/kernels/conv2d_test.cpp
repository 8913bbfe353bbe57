// Every implementation of conv2d against the double-precision reference, and the reference against a plain
// convolution of the doubled, concatenated, padded image.
#include "kernels/conv/conv2d.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "support/conv2d_testing.hpp"
#include "unit_tests/kernels/product_testing.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

// Operands in the host's memory.
struct Operands : ConvOperands {
  Operands(const ConvCase& c, DType dtype, uint64_t seed, std::optional<DType> result = std::nullopt)
      : ConvOperands(host_device(), c, dtype, seed, result) {}
  ConvWeight weight_of(const ConvCase& c) const { return conv_weight(host_device(), c); }
  Tensor run(Exec& ex, const ConvCase& c, const ConvWeight& w) const { return conv2d(ex, x, w, args(c)); }
};

// With what Winograd, tiles and oneDNN have boundaries of their own for.
std::vector<ConvCase> cases() {
  const Padding none;
  std::vector<ConvCase> out = conv_cases();
  const ConvCase more[] = {
      {{1, 3, 4, 5}, 0, 7, 3, 2, Padding::same(1), true},
      {{1, 3, 3, 5}, 0, 7, 1, 1, none, true},
      {{1, 12, 12, 64}, 0, 64, 3, 1, Padding::same(1), false, true, false, true, Activation::kRelu},
      {{1, 16, 16, 32}, 0, 64, 3, 1, Padding::same(1), false, true, true, false, Activation::kGelu},
      {{4, 13, 11, 24}, 0, 16, 3, 1, Padding::same(1), false, true, true, true, Activation::kQuickGelu},
      {{1, 10, 10, 3}, 0, 16, 7, 1, Padding::same(3)},
      {{1, 6, 6, 321}, 0, 17, 1, 1, none},
      {{1, 4, 4, 330}, 322, 16, 3},
      {{2, 20, 18, 64}, 0, 64, 3, 1, Padding{2, 0, 1, 3}},
      {{1, 33, 29, 64}, 64, 64, 3},
      {{2, 18, 21, 32}, 0, 72, 3, 1, Padding::same(1), false, true, true, true, Activation::kSilu},
      {{1, 5, 4, 16}, 0, 64, 3, 1, Padding{0, 2, 1, 0}, false, false},
      {{1, 40, 44, 336}, 0, 80, 3},
  };
  out.insert(out.end(), std::begin(more), std::end(more));
  return out;
}

class Conv2dTest : public testing::TestWithParam<std::tuple<const char*, DType>> {};

TEST_P(Conv2dTest, MatchesTheReference) {
  const auto [impl, dtype] = GetParam();
  int taken = 0;
  std::string refusal;
  uint64_t seed = 1;
  for (const ConvCase& c : cases()) {
    const Operands operands(c, dtype, seed += 11);
    TestExec test;
    const ConvWeight reference = operands.weight_of(c), w = operands.weight_of(c);
    const auto want = under("conv2d", "ref", [&] { return operands.run(test.ex, c, reference); }, &refusal);
    ASSERT_TRUE(want) << refusal;
    const auto got = under("conv2d", impl, [&] { return operands.run(test.ex, c, w); }, &refusal);
    if (!got) continue;
    ++taken;
    const int64_t length = (c.x[3] + c.second) * c.filter * c.filter;
    expect_tensor_near(*got, to_doubles(*want), reduction_tolerance(dtype, length),
                       concat(impl, " ", dtype, " ", describe(c)));
  }
  if (taken == 0) GTEST_SKIP() << refusal;
}

TEST_P(Conv2dTest, ReplaysTheSameBitsFromThePlannedArena) {
  const auto [impl, dtype] = GetParam();
  for (const ConvCase& c :
       {ConvCase{{2, 12, 12, 32}, 16, 48, 3, 1, Padding::same(1), false, true, true, true},
        ConvCase{{1, 8, 8, 32}, 0, 32, 3, 1, Padding::same(1), true}, ConvCase{{1, 24, 24, 64}, 0, 64}}) {
    const Operands operands(c, dtype, 5);
    const ConvWeight w = operands.weight_of(c);
    const ForcedImpl only("conv2d", impl);
    Arena arena(host_device());
    std::vector<float> result;
    Program program("conv2d", arena, [&](Exec& ex) {
      const Tensor y = operands.run(ex, c, w);
      if (!ex.planning())
        ex.launch({"look"}, [&result, data = y.data(), dtype, n = y.numel()] {
          result.resize(static_cast<size_t>(n));
          convert_elements(data, dtype, result.data(), DType::kF32, n);
        });
    });
    try {
      program.plan();
    } catch (const UsageError&) {
      continue;
    }
    program.run();
    const std::vector<float> first = result;
    EXPECT_LE(arena.used_peak(), program.arena_bytes());
    std::fill(result.begin(), result.end(), 0.0f);
    program.run();
    EXPECT_EQ(first, result) << impl << " " << describe(c);
  }
}

TEST_P(Conv2dTest, HoldsWeightsOnceAndGivesThemBack) {
  const auto [impl, dtype] = GetParam();
  std::string refusal;
  for (const int64_t second : {0, 32}) {
    const ConvCase c{{1, 6, 6, 64}, second, 128};
    const Operands operands(c, dtype, 6);
    const ConvWeight w = operands.weight_of(c);
    TestExec test;
    if (!under("conv2d", impl, [&] { return operands.run(test.ex, c, w); }, &refusal))
      GTEST_SKIP() << refusal;
    // Panels may be padded; Winograd's filters are four times the plain one, which stays.
    const size_t most = impl == std::string("winograd") ? 5 : 1;
    EXPECT_LE(w.weight.stored_bytes(), operands.weight.bytes() * most * 9 / 8) << impl;
    EXPECT_EQ(to_doubles(w.weight.plain()), to_doubles(operands.weight)) << impl;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Conv2dTest,
                         testing::Combine(testing::Values("winograd", "tiled", "onednn"),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& info) {
                           return concat(std::get<0>(info.param), "_", std::get<1>(info.param));
                         });

// Products of bf16 whose result, residual and sum are float.
TEST(Conv2dTypes, Bf16GivesFloat) {
  uint64_t seed = 1;
  for (const ConvCase& c : cases()) {
    const Operands operands(c, DType::kBF16, seed += 11, DType::kF32);
    TestExec test;
    const ConvWeight reference = operands.weight_of(c);
    const Tensor want = reference_conv2d(test.ex, operands.x, reference, operands.args(c));
    ASSERT_EQ(want.dtype(), DType::kF32);
    for (const char* impl : {"tiled", "onednn"}) {
      const ConvWeight w = operands.weight_of(c);
      std::string refusal;
      const auto got = under("conv2d", impl, [&] { return operands.run(test.ex, c, w); }, &refusal);
      if (!got) continue;
      const ConvArgs args = operands.args(c);
      expect_tensor_near(*got, to_doubles(want), conv_tolerance({operands.x, w, args, want}),
                         concat(impl, " ", describe(c)));
    }
  }
}

TEST(Conv2dTypes, RefusesOtherResults) {
  const ConvCase c{{1, 4, 4, 8}, 0, 8};
  TestExec test;
  for (const auto& [x, y] : {std::pair{DType::kF32, DType::kBF16}, {DType::kF16, DType::kF32}}) {
    const Operands operands(c, x, 1, y);
    EXPECT_THROW(operands.run(test.ex, c, operands.weight_of(c)), UsageError) << concat(x, " to ", y);
  }
  const Operands mixed(c, DType::kBF16, 1, DType::kF32);
  EXPECT_THROW(conv2d(test.ex, mixed.x, mixed.weight_of(c),
                      {.pad = Padding::same(1), .epilogue = {.residual = &mixed.residual}}),
               ShapeError);
}

// The image that conv2d only pretends to make: concatenated, doubled, padded; [N,H,W,C] doubles.
std::vector<double> materialised(const ConvCase& c, const Operands& o, int64_t* height, int64_t* width) {
  const int64_t scale = c.upsample2x ? 2 : 1, channels = c.x[3] + c.second;
  *height = scale * c.x[1] + c.pad.top + c.pad.bottom;
  *width = scale * c.x[2] + c.pad.left + c.pad.right;
  const std::vector<double> x = to_doubles(o.x),
                            second = c.second ? to_doubles(o.second) : std::vector<double>{};
  std::vector<double> image(static_cast<size_t>(c.x[0] * *height * *width * channels), 0.0);
  for (int64_t n = 0; n < c.x[0]; ++n)
    for (int64_t i = 0; i < scale * c.x[1]; ++i)
      for (int64_t j = 0; j < scale * c.x[2]; ++j)
        for (int64_t k = 0; k < channels; ++k) {
          const int64_t pixel = (n * c.x[1] + i / scale) * c.x[2] + j / scale;
          image[((n * *height + i + c.pad.top) * *width + j + c.pad.left) * channels + k] =
              k < c.x[3] ? x[pixel * c.x[3] + k] : second[pixel * c.second + k - c.x[3]];
        }
  return image;
}

TEST(Conv2dRef, IsThePlainConvolutionOfTheMaterialisedImage) {
  for (const ConvCase& c :
       {ConvCase{{2, 4, 5, 3}, 2, 4, 3, 1, Padding{1, 0, 2, 1}, true, true, true, true, Activation::kSilu},
        ConvCase{{1, 6, 5, 4}, 0, 3, 3, 2, Padding{0, 0, 1, 1}, false, false, false, true},
        ConvCase{{1, 4, 7, 5},
                 0,
                 6,
                 3,
                 1,
                 Padding::same(1),
                 false,
                 true,
                 true,
                 true,
                 Activation::kNone,
                 0,
                 0,
                 true}}) {
    const Operands o(c, DType::kF32, 3);
    int64_t height, width;
    const std::vector<double> image = materialised(c, o, &height, &width), w = to_doubles(o.weight),
                              residual = to_doubles(o.residual);
    const int64_t channels = c.x[3] + c.second;
    const Shape shape = output_of(c);
    std::vector<double> want;
    for (int64_t at = 0; at < shape.numel(); ++at) {
      const int64_t k = at % c.out, q = at / c.out % shape[2], p = at / c.out / shape[2] % shape[1],
                    n = at / c.out / shape[2] / shape[1];
      double sum = c.bias ? o.bias.as<float>()[k] : 0.0;
      for (int64_t ch = 0; ch < channels; ++ch)
        for (int64_t r = 0; r < 3; ++r)
          for (int64_t s = 0; s < 3; ++s)
            sum += image[((n * height + p * c.stride + r) * width + q * c.stride + s) * channels + ch] *
                   w[((k * channels + ch) * 3 + r) * 3 + s];
      if (c.shift) sum += o.shift.as<float>()[n * o.shift.stride(0) + k];
      if (c.residual) sum += residual[at];
      if (c.slopes && sum < 0) sum *= o.slopes.as<float>()[k];
      want.push_back(c.act == Activation::kSilu ? sum / (1 + std::exp(-sum)) : sum);
    }
    TestExec test;
    const ForcedImpl only("conv2d", "ref");
    expect_tensor_near(o.run(test.ex, c, o.weight_of(c)), want, 1e-6, describe(c));
  }
}

TEST(Conv2d, RejectsWhatDoesNotFit) {
  TestExec test;
  const Tensor x = random_tensor({2, 4, 4, 8}, DType::kF32, 1);
  const auto weight = [](Shape shape) {
    return ConvWeight{Weight(random_tensor(shape, DType::kF32, 2)), {}};
  };
  const auto expect_error = [&](const std::string& part, const ConvWeight& w, const ConvArgs& args = {}) {
    try {
      conv2d(test.ex, x, w, args);
      ADD_FAILURE() << "no error that says " << part;
    } catch (const ShapeError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  expect_error("takes 9 channels, the input has 8", weight({4, 9, 3, 3}));
  expect_error("larger than the padded input", weight({4, 8, 5, 5}));
  expect_error("expected a weight [K,C,R,S]", weight({4, 8}));
  expect_error("stride 0", weight({4, 8, 1, 1}), {.stride = 0});
  expect_error("negative padding", weight({4, 8, 1, 1}), {.pad = {-1, 0, 0, 0}});
  const Tensor other = random_tensor({2, 4, 5, 8}, DType::kF32, 1);
  expect_error("second input [2,4,5,8]", weight({4, 16, 1, 1}), {.second = &other});
  expect_error("expected a contiguous residual [2,4,4,4]", weight({4, 8, 1, 1}),
               {.epilogue = {.residual = &other}});
  const Tensor shift = random_tensor({1, 4}, DType::kF32, 1);
  expect_error("expected a channel shift [2,4]", weight({4, 8, 1, 1}),
               {.epilogue = {.channel_shift = &shift}});
  expect_error("expected slopes [4] of f32 and no activation, got [1,4]", weight({4, 8, 1, 1}),
               {.epilogue = {.slopes = &shift}});
  const Tensor slopes = random_tensor({4}, DType::kF32, 1);
  expect_error("and silu", weight({4, 8, 1, 1}), {.epilogue = {.act = Activation::kSilu, .slopes = &slopes}});
}

}  // namespace
}  // namespace rocm_sd
