// Every implementation of linear and linear_geglu against the double-precision reference, and the reference
// against the formula.
#include "kernels/gemm/linear.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/format.hpp"
#include "unit_tests/kernels/product_testing.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

struct Case {
  Shape x;
  int64_t out = 0;
  bool bias = true, residual = false, gated = false;
  Activation act = Activation::kNone;
  int64_t extra_columns = 0;     // x is a slice of rows that are this much longer
  int64_t scales = 0, rank = 0;  // images with a scale of channels each, rank of a low-rank term; 0: none
};

std::string describe(const Case& c) {
  return fmt::format("{}->{}{}{}{} act {} extra {} scales {} rank {}", c.x, c.out, c.bias ? " bias" : "",
                     c.residual ? " residual" : "", c.gated ? " gated" : "", activation_name(c.act),
                     c.extra_columns, c.scales, c.rank);
}

// Operands of one case, in one dtype; results are the size of one.
struct Operands {
  Tensor x, weight, bias, residual, scale, states;
  Weight up;
  // result: the type of y and of the residual, weight_type: the weight's; by default dtype.
  Operands(const Case& c, DType dtype, uint64_t seed, std::optional<DType> result = std::nullopt,
           std::optional<DType> weight_type = std::nullopt) {
    Shape wide = c.x, y = c.x;
    wide[-1] += c.extra_columns;
    y[-1] = c.out;
    const int64_t in = c.x[-1], rows = c.gated ? 2 * c.out : c.out;
    x = random_tensor(wide, dtype, seed).narrow(-1, c.extra_columns, in);
    weight = random_tensor({rows, in}, weight_type.value_or(dtype), seed + 1,
                           1 / std::sqrt(static_cast<float>(in)));
    bias = random_tensor({rows}, DType::kF32, seed + 2);
    residual = random_tensor(y, result.value_or(dtype), seed + 3);
    if (c.scales) scale = random_tensor({c.scales, c.out}, DType::kF32, seed + 4);
    if (c.rank == 0) return;
    y[-1] = c.rank;
    states = random_tensor(y, dtype, seed + 5);
    up = Weight(random_tensor({rows, c.rank}, weight_type.value_or(dtype), seed + 6,
                              1 / std::sqrt(static_cast<float>(c.rank))));
  }
  LinearWeight linear_weight(const Case& c) const {
    LinearWeight w{copy_of(weight), std::nullopt};
    if (c.bias) w.bias = bias;
    return w;
  }
  Tensor run(Exec& ex, const Case& c, const LinearWeight& w) const {
    const LowRankProduct term{&states, &up};
    if (c.gated) return linear_geglu(ex, x, w, c.rank ? &term : nullptr);
    return linear(ex, x, w,
                  {.residual = c.residual ? &residual : nullptr,
                   .act = c.act,
                   .dtype = residual.dtype(),
                   .channel_scale = c.scales ? &scale : nullptr,
                   .low_rank = c.rank ? &term : nullptr});
  }
};

std::vector<Case> cases() {
  std::vector<Case> out = {
      {{1, 1}, 1},
      {{1, 320}, 1280, true, false, false, Activation::kSilu},
      {{2, 77, 768}, 320, false},
      {{5, 7}, 13, true, true},
      {{3, 4, 640}, 640, true, true},
      {{131, 321}, 33, true, false, false, Activation::kGelu},
      {{140, 96}, 100, true, false, false, Activation::kQuickGelu},
      {{7, 641}, 17, false, false, false, Activation::kRelu},
      {{2, 33, 40}, 48, true, false, false, Activation::kNone, 80},
      {{6, 64}, 128, true, true, false, Activation::kSilu, 3},
      {{2, 20, 64}, 160, true, false, true},
      {{3, 100, 70}, 128, true, false, true},
      {{5, 70}, 64, false, false, true},
      {{1, 5}, 3, true, false, true},
      {{9, 100}, 8, false, false, true},
      {{300, 32}, 65, true, false, true, Activation::kNone, 1},
      {{6, 64}, 128, true, true, false, Activation::kSilu, 8, 3},
      {{4, 33, 280}, 40, false, false, false, Activation::kNone, 0, 4},
      {{70, 56}, 45, true, true, false, Activation::kGelu, 8, 0, 24},
      {{90, 328}, 72, false, false, false, Activation::kNone, 0, 0, 8},
      {{66, 264}, 40, true, true, false, Activation::kNone, 0, 2, 96},
      {{33, 40}, 48, true, false, true, Activation::kNone, 0, 0, 40},
      {{40, 512}, 36, false, false, true, Activation::kNone, 0, 0, 16},
      {{9, 30}, 12, true, true, false, Activation::kNone, 0, 0, 5},
  };
  std::mt19937 random(11);
  const auto pick = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  for (int i = 0; i < 25; ++i)
    out.push_back({{pick(3), pick(90), pick(700)},
                   pick(150),
                   random() % 2 == 0,
                   false,
                   random() % 4 == 0,
                   Activation::kNone,
                   static_cast<int64_t>(random() % 2 * pick(9))});
  for (size_t i = out.size() - 25; i < out.size(); ++i)
    if (!out[i].gated) {
      out[i].residual = random() % 2 == 0;
      out[i].act = static_cast<Activation>(random() % 5);
    }
  return out;
}

class LinearTest : public testing::TestWithParam<std::tuple<const char*, DType>> {};

TEST_P(LinearTest, MatchesTheReference) {
  const auto [impl, dtype] = GetParam();
  int taken = 0;
  std::string refusal;
  uint64_t seed = 1;
  for (const Case& c : cases()) {
    const Operands operands(c, dtype, seed += 10);
    TestExec test;
    const char* op = "linear";
    const LinearWeight reference = operands.linear_weight(c), w = operands.linear_weight(c);
    const auto want = under(op, "ref", [&] { return operands.run(test.ex, c, reference); }, &refusal);
    ASSERT_TRUE(want) << refusal;
    const auto got = under(op, impl, [&] { return operands.run(test.ex, c, w); }, &refusal);
    if (!got) continue;
    ++taken;
    // Where a product of its own makes the term, it and the sum with the other one are rounded before gates
    // read them.
    const double roundings = c.rank && impl != std::string("scalar") ? 3 : 1;
    expect_tensor_near(*got, to_doubles(*want), roundings * reduction_tolerance(dtype, c.x[-1]),
                       concat(impl, " ", dtype, " ", describe(c)));
  }
  if (taken == 0) GTEST_SKIP() << refusal;
}

// Every implementation that takes these types, the tiled one always.
void expect_mixed_types_match(DType x, DType weight, DType result, bool with_gates) {
  uint64_t seed = 1;
  for (const Case& c : cases()) {
    if ((c.gated && !with_gates) || c.scales) continue;  // no scale by the tiled one
    const Operands operands(c, x, seed += 10, result, weight);
    TestExec test;
    std::string refusal;
    const LinearWeight reference = operands.linear_weight(c);
    const auto want = under("linear", "ref", [&] { return operands.run(test.ex, c, reference); }, &refusal);
    ASSERT_TRUE(want) << refusal;
    ASSERT_EQ(want->dtype(), result);
    for (const char* impl : {"tiled", "onednn", "scalar"}) {
      const LinearWeight w = operands.linear_weight(c);
      const auto got = under("linear", impl, [&] { return operands.run(test.ex, c, w); }, &refusal);
      ASSERT_TRUE(got || impl != std::string("tiled")) << refusal;
      if (got)
        expect_tensor_near(*got, to_doubles(*want), (c.rank ? 3 : 1) * reduction_tolerance(result, c.x[-1]),
                           concat(impl, " ", describe(c)));
    }
  }
}

TEST(LinearTypes, Bf16GivesFloat) {
  expect_mixed_types_match(DType::kBF16, DType::kBF16, DType::kF32, false);
}
TEST(LinearTypes, FloatByAWeightOf16Bits) {
  for (const DType weight : {DType::kBF16, DType::kF16})
    expect_mixed_types_match(DType::kF32, weight, DType::kF32, true);
}

// f16 has subnormals down to 2^-24, infinities and numbers that are none.
TEST(LinearTypes, EveryValueOfF16IsRead) {
  std::vector<uint16_t> bits(1 << 16);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  const Tensor plain = make_tensor(host_device(), {1 << 16, 1}, DType::kF16);
  host_device().copy_to_device(plain.data(), bits.data(), plain.bytes());
  const float one = 1;
  const Tensor x = tensor_from(host_device(), {1, 1}, &one);
  TestExec test;
  const ForcedImpl only("linear", "tiled");
  const std::vector<float> got = to_floats(host_device(), linear(test.ex, x, {Weight(plain), std::nullopt}));
  for (size_t i = 0; i < bits.size(); ++i) {
    const float want = f16_to_float(bits[i]);
    ASSERT_TRUE(got[i] == want || (std::isnan(got[i]) && std::isnan(want))) << i << ": " << got[i];
  }
}

TEST(LinearTypes, RefusesOtherMixtures) {
  const Case c{{2, 8}, 8};
  TestExec test;
  for (const auto& [x, weight, y] :
       {std::tuple{DType::kF32, DType::kF32, DType::kBF16}, {DType::kF16, DType::kF16, DType::kF32}}) {
    const Operands operands(c, x, 1, y, weight);
    EXPECT_THROW(operands.run(test.ex, c, operands.linear_weight(c)), UsageError) << concat(x, " to ", y);
  }
  const Operands operands(c, DType::kBF16, 1, DType::kBF16, DType::kF32);
  EXPECT_THROW(operands.run(test.ex, c, operands.linear_weight(c)), ShapeError);
}

TEST_P(LinearTest, ReplaysTheSameBitsFromThePlannedArena) {
  const auto [impl, dtype] = GetParam();
  const Case c{{2, 250, 160}, 128, true, false, true};
  const Operands operands(c, dtype, 5);
  const LinearWeight w = operands.linear_weight(c);
  const ForcedImpl only("linear", impl);
  Arena arena(host_device());
  std::vector<float> result;
  Program program("linear", arena, [&](Exec& ex) {
    const Tensor y = operands.run(ex, c, w);
    if (!ex.planning())
      ex.launch({"look"}, [&result, data = y.data(), dtype, n = y.numel()] {
        result.resize(static_cast<size_t>(n));
        convert_elements(data, dtype, result.data(), DType::kF32, n);
      });
  });
  try {
    program.plan();
  } catch (const UsageError& error) {
    GTEST_SKIP() << error.what();
  }
  program.run();
  const std::vector<float> first = result;
  EXPECT_LE(arena.used_peak(), program.arena_bytes());
  std::fill(result.begin(), result.end(), 0.0f);
  program.run();
  EXPECT_EQ(first, result);
}

TEST_P(LinearTest, HoldsWeightsOnceAndGivesThemBack) {
  const auto [impl, dtype] = GetParam();
  const Case c{{10, 96}, 192};
  const Operands operands(c, dtype, 6);
  const LinearWeight w = operands.linear_weight(c);
  TestExec test;
  std::string refusal;
  if (!under("linear", impl, [&] { return operands.run(test.ex, c, w); }, &refusal)) GTEST_SKIP() << refusal;
  EXPECT_LE(w.weight.stored_bytes(), operands.weight.bytes() * 5 / 4);  // panels may be padded
  EXPECT_EQ(to_doubles(w.weight.plain()), to_doubles(operands.weight));
}

// The bodies of the GPU kernels, on the host.
INSTANTIATE_TEST_SUITE_P(Scalar, LinearTest,
                         testing::Combine(testing::Values("scalar"),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kF16)),
                         [](const auto& info) {
                           return concat(std::get<0>(info.param), "_", std::get<1>(info.param));
                         });

INSTANTIATE_TEST_SUITE_P(All, LinearTest,
                         testing::Combine(testing::Values("tiled", "onednn"),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& info) {
                           return concat(std::get<0>(info.param), "_", std::get<1>(info.param));
                         });

// The reference itself, by the formula on a case small enough to read.
TEST(LinearRef, FollowsTheFormula) {
  const float x_values[] = {1, 2, -1, 0.5f}, w_values[] = {0.5f, -1, 2, 3, 1, 1}, b_values[] = {0.25f, 0, -1};
  const Tensor x = tensor_from(host_device(), {2, 2}, x_values);
  const LinearWeight w{Weight(tensor_from(host_device(), {3, 2}, w_values)),
                       tensor_from(host_device(), {3}, b_values)};
  TestExec test;
  const ForcedImpl only("linear", "ref");
  const std::vector<double> want = {0.5 - 2 + 0.25,    2 + 6,    1 + 2 - 1,  //
                                    -0.5 - 0.5 + 0.25, -2 + 1.5, -1 + 0.5 - 1};
  expect_tensor_near(linear(test.ex, x, w), want, 1e-6);
  std::vector<double> silu = want;
  for (double& v : silu) v = v / (1 + std::exp(-v));
  expect_tensor_near(linear(test.ex, x, w, {.act = Activation::kSilu}), silu, 1e-6);
  const LinearWeight gated{Weight(tensor_from(host_device(), {2, 2}, w_values)), std::nullopt};
  const auto gelu = [](double v) { return 0.5 * v * std::erfc(-v / std::sqrt(2.0)); };
  expect_tensor_near(linear_geglu(test.ex, x, gated), {-1.5 * gelu(8), -1.0 * gelu(-0.5)}, 1e-6);
}

TEST(Linear, RejectsWhatDoesNotFit) {
  TestExec test;
  const Tensor x = random_tensor({4, 8}, DType::kF32, 1);
  const auto weight = [](int64_t out, int64_t in, DType dtype = DType::kF32) {
    return LinearWeight{Weight(random_tensor({out, in}, dtype, 2)), std::nullopt};
  };
  const auto expect_error = [](const std::string& part, const std::function<void()>& run) {
    try {
      run();
      ADD_FAILURE() << "no error that says " << part;
    } catch (const ShapeError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  expect_error("x [4,8] does not fit the weight [3,9]", [&] { linear(test.ex, x, weight(3, 9)); });
  const Tensor rounded = random_tensor({4, 8}, DType::kBF16, 1);
  expect_error("the weight f32", [&] { linear(test.ex, rounded, weight(3, 8)); });
  expect_error("the weight f16", [&] { linear(test.ex, rounded, weight(3, 8, DType::kF16)); });
  expect_error("cannot halve", [&] { linear_geglu(test.ex, x, weight(3, 8)); });
  expect_error("is empty", [&] { linear(test.ex, x, {}); });
  const Tensor eighth = random_tensor({4, 8}, DType::kF8E4M3, 1);
  expect_error("expected f32, bf16 or f16", [&] { linear(test.ex, eighth, weight(3, 8)); });
  LinearWeight biased = weight(3, 8);
  biased.bias = random_tensor({4}, DType::kF32, 3);
  expect_error("expected a bias [3]", [&] { linear(test.ex, x, biased); });
  const Tensor residual = random_tensor({4, 4}, DType::kF32, 3);
  expect_error("residual [4,3]", [&] { linear(test.ex, x, weight(3, 8), {.residual = &residual}); });
  expect_error("channel shift", [&] { linear(test.ex, x, weight(3, 8), {.channel_shift = &residual}); });
  const Tensor scale = random_tensor({3, 3}, DType::kF32, 3);
  expect_error("a divisor of 4 rows, got [3,3]",
               [&] { linear(test.ex, x, weight(3, 8), {.channel_scale = &scale}); });
  const Weight up(random_tensor({3, 2}, DType::kF32, 3)), wide(random_tensor({4, 2}, DType::kF32, 3)),
      rounded_up(random_tensor({3, 2}, DType::kF16, 3));
  const Tensor states = random_tensor({4, 2}, DType::kF32, 3), few = random_tensor({3, 2}, DType::kF32, 3);
  const auto with_term = [&](const Tensor& of, const Weight& by) {
    const LowRankProduct term{&of, &by};
    linear(test.ex, x, weight(3, 8), {.low_rank = &term});
  };
  EXPECT_NO_THROW(with_term(states, up));
  expect_error("low-rank term up [3,R], got [4,2]", [&] { with_term(states, wide); });
  expect_error("contiguous states [4,2] of the low-rank term, got [3,2]", [&] { with_term(few, up); });
  expect_error("the low-rank term is f32 by f16", [&] { with_term(states, rounded_up); });
  expect_error("of the low-rank term is empty", [&] { with_term({}, up); });
  const Tensor cube = random_tensor({2, 5, 8}, DType::kF32, 1).narrow(1, 0, 3);
  expect_error("not evenly spaced", [&] { linear(test.ex, cube, weight(3, 8)); });
  EXPECT_EQ(linear(test.ex, random_tensor({0, 8}, DType::kF32, 1), weight(3, 8)).shape(), (Shape{0, 3}));
}

}  // namespace
}  // namespace rocm_sd
