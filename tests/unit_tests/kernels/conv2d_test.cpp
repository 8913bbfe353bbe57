// Every implementation of conv2d against the double-precision reference, and the reference against a plain
// convolution of the doubled, concatenated, padded image.
#include "kernels/conv/conv2d.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "unit_tests/kernels/product_testing.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

struct Case {
  Shape x;  // [N,H,W,C]
  int64_t second = 0, out = 1, filter = 3;
  int stride = 1;
  Padding pad = Padding::same(1);
  bool upsample2x = false, bias = true, shift = false, residual = false;
  Activation act = Activation::kNone;
};

std::string describe(const Case& c) {
  return fmt::format("{}+{}->{} {}x{} s{} p{}{}{}{} up {} bias {} shift {} residual {} act {}", c.x, c.second,
                     c.out, c.filter, c.filter, c.stride, c.pad.top, c.pad.left, c.pad.bottom, c.pad.right,
                     c.upsample2x, c.bias, c.shift, c.residual, activation_name(c.act));
}

Shape output_of(const Case& c) {
  const int64_t scale = c.upsample2x ? 2 : 1;
  return {c.x[0], (scale * c.x[1] + c.pad.top + c.pad.bottom - c.filter) / c.stride + 1,
          (scale * c.x[2] + c.pad.left + c.pad.right - c.filter) / c.stride + 1, c.out};
}

struct Operands {
  Tensor x, second, weight, bias, shift, residual;
  Operands(const Case& c, DType dtype, uint64_t seed) {
    const int64_t channels = c.x[3] + c.second;
    const float scale = 1 / std::sqrt(static_cast<float>(channels * c.filter * c.filter));
    x = random_tensor(c.x, dtype, seed);
    if (c.second) second = random_tensor({c.x[0], c.x[1], c.x[2], c.second}, dtype, seed + 1);
    weight = random_tensor({c.out, channels, c.filter, c.filter}, dtype, seed + 2, scale);
    bias = random_tensor({c.out}, DType::kF32, seed + 3);
    // A slice of a wider table, as the time embedding's projections are.
    const DType shift_dtype = seed % 2 ? DType::kF32 : dtype;
    shift = random_tensor({c.x[0], c.out + 5}, shift_dtype, seed + 4).narrow(1, 2, c.out);
    residual = random_tensor(output_of(c), dtype, seed + 5);
  }
  ConvWeight conv_weight(const Case& c) const {
    ConvWeight w{copy_of(weight), std::nullopt};
    if (c.bias) w.bias = bias;
    return w;
  }
  Tensor run(Exec& ex, const Case& c, const ConvWeight& w) const {
    return conv2d(ex, x, w,
                  {.stride = c.stride,
                   .pad = c.pad,
                   .upsample2x = c.upsample2x,
                   .second = c.second ? &second : nullptr,
                   .epilogue = {.channel_shift = c.shift ? &shift : nullptr,
                                .residual = c.residual ? &residual : nullptr,
                                .act = c.act}});
  }
};

std::vector<Case> cases() {
  const Padding none, lower{0, 0, 1, 1};
  std::vector<Case> out = {
      {{1, 1, 1, 1}, 0, 1, 1, 1, none},
      {{1, 1, 1, 3}, 0, 4, 3},
      {{2, 5, 7, 4}, 0, 32, 3},
      {{2, 8, 8, 9}, 0, 13, 3, 1, Padding::same(1), false, true, true},
      {{1, 9, 6, 8}, 0, 8, 3, 2},
      {{1, 8, 8, 16}, 0, 24, 3, 2, lower},
      {{2, 7, 5, 64}, 0, 3, 3},
      {{3, 6, 6, 40}, 24, 48, 3, 1, Padding::same(1), false, true, true, true},
      {{2, 4, 4, 64}, 32, 40, 1, 1, none, false, true, false, false, Activation::kSilu},
      {{1, 5, 4, 16}, 0, 20, 3, 1, Padding::same(1), true},
      {{2, 6, 7, 32}, 0, 33, 3, 1, Padding::same(1), true, true, true, true},
      {{1, 5, 4, 6}, 3, 20, 3, 1, Padding::same(1), true, false},
      {{1, 3, 4, 5}, 0, 7, 3, 2, Padding::same(1), true},
      {{1, 3, 3, 5}, 0, 7, 1, 1, none, true},
      {{1, 12, 12, 64}, 0, 64, 3, 1, Padding::same(1), false, true, false, true, Activation::kRelu},
      {{1, 16, 16, 32}, 0, 64, 3, 1, Padding::same(1), false, true, true, false, Activation::kGelu},
      {{4, 13, 11, 24}, 0, 16, 3, 1, Padding::same(1), false, true, true, true, Activation::kQuickGelu},
      {{1, 10, 10, 3}, 0, 16, 7, 1, Padding::same(3)},
      {{1, 14, 14, 3}, 0, 16, 14, 14, none, false, false},
      {{1, 6, 6, 321}, 0, 17, 1, 1, none},
      {{1, 4, 4, 330}, 322, 16, 3},
      {{2, 20, 18, 64}, 0, 64, 3, 1, Padding{2, 0, 1, 3}},
      {{1, 33, 29, 64}, 64, 64, 3},
      {{2, 18, 21, 32}, 0, 72, 3, 1, Padding::same(1), false, true, true, true, Activation::kSilu},
      {{1, 5, 4, 16}, 0, 64, 3, 1, Padding{0, 2, 1, 0}, false, false},
      {{1, 40, 44, 336}, 0, 80, 3},
  };
  std::mt19937 random(12);
  const auto pick = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  for (int i = 0; i < 30; ++i) {
    Case c{{pick(4), pick(12), pick(12), pick(70)}};
    if (random() % 3 == 0) c.second = pick(40);
    c.out = pick(80);
    c.filter = random() % 3 == 0 ? 1 : 3;
    c.stride = static_cast<int>(pick(2));
    c.pad = {static_cast<int>(random() % 3), static_cast<int>(random() % 3), 2, 2};
    c.upsample2x = random() % 4 == 0;
    c.bias = random() % 2 == 0;
    c.shift = random() % 2 == 0;
    c.residual = random() % 2 == 0;
    c.act = static_cast<Activation>(random() % 5);
    out.push_back(c);
  }
  return out;
}

class Conv2dTest : public testing::TestWithParam<std::tuple<const char*, DType>> {};

TEST_P(Conv2dTest, MatchesTheReference) {
  const auto [impl, dtype] = GetParam();
  int taken = 0;
  std::string refusal;
  uint64_t seed = 1;
  for (const Case& c : cases()) {
    const Operands operands(c, dtype, seed += 11);
    TestExec test;
    const ConvWeight reference = operands.conv_weight(c), w = operands.conv_weight(c);
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
  for (const Case& c :
       {Case{{2, 12, 12, 32}, 16, 48, 3, 1, Padding::same(1), false, true, true, true},
        Case{{1, 8, 8, 32}, 0, 32, 3, 1, Padding::same(1), true}, Case{{1, 24, 24, 64}, 0, 64}}) {
    const Operands operands(c, dtype, 5);
    const ConvWeight w = operands.conv_weight(c);
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
    const Case c{{1, 6, 6, 64}, second, 128};
    const Operands operands(c, dtype, 6);
    const ConvWeight w = operands.conv_weight(c);
    TestExec test;
    if (!under("conv2d", impl, [&] { return operands.run(test.ex, c, w); }, &refusal))
      GTEST_SKIP() << refusal;
    // Panels may be padded; Winograd's filters are four times the plain one, which stays.
    const size_t most = impl == std::string("winograd") ? 5 : 1;
    EXPECT_LE(w.weight.bytes_held(), operands.weight.bytes() * most * 9 / 8) << impl;
    EXPECT_EQ(to_doubles(w.weight.plain()), to_doubles(operands.weight)) << impl;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Conv2dTest,
                         testing::Combine(testing::Values("winograd", "tiled", "onednn"),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& info) {
                           return concat(std::get<0>(info.param), "_", std::get<1>(info.param));
                         });

// The image that conv2d only pretends to make: concatenated, doubled, padded; [N,H,W,C] doubles.
std::vector<double> materialised(const Case& c, const Operands& o, int64_t* height, int64_t* width) {
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
  for (const Case& c :
       {Case{{2, 4, 5, 3}, 2, 4, 3, 1, Padding{1, 0, 2, 1}, true, true, true, true, Activation::kSilu},
        Case{{1, 6, 5, 4}, 0, 3, 3, 2, Padding{0, 0, 1, 1}, false, false, false, true}}) {
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
      want.push_back(c.act == Activation::kSilu ? sum / (1 + std::exp(-sum)) : sum);
    }
    TestExec test;
    const ForcedImpl only("conv2d", "ref");
    expect_tensor_near(o.run(test.ex, c, o.conv_weight(c)), want, 1e-6, describe(c));
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
}

}  // namespace
}  // namespace rocm_sd
