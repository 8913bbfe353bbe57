// group_norm and layer_norm: every implementation against the double-precision ones; two inputs, offsets, bad
// input.
#include "kernels/norm/norm.hpp"

#include <gmock/gmock.h>

#include "base/format.hpp"
#include "kernels/norm/norm_plan.hpp"
#include "support/implementations.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;
using testing::HasSubstr;

NormWeight random_weight(int64_t channels, uint64_t seed) {
  return {random_tensor({channels}, DType::kF32, seed), random_tensor({channels}, DType::kF32, seed + 1)};
}

template <class Op>
std::vector<double> reference(const char* name, const Op& op) {
  const ForcedImpl forced(name, "ref");
  TestExec test;
  return to_doubles(op(test.ex));
}

struct Case {
  Shape shape;
  int groups = 1;
  int64_t second = 0;  // channels of the second input
  Activation act = Activation::kNone;
};
std::vector<Case> cases() {
  std::vector<Case> out = {
      {{1, 1, 1, 1}, 1},
      {{2, 3, 5, 8}, 4},
      {{1, 8, 8, 320}, 32, 0, Activation::kSilu},
      {{2, 5, 7, 33}, 3},
      {{2, 4, 4, 6}, 5, 4, Activation::kSilu},  // groups of two straddle the boundary at 6
      {{1, 4, 4, 10}, 4, 6},                    // groups of four: one straddles
      {{1, 37, 41, 32}, 32},                    // several blocks of pixels, the last short
      {{2, 16, 16, 640}, 32, 320, Activation::kSilu},
      {{0, 4, 4, 8}, 2},
      {{1, 0, 4, 8}, 2}};
  std::mt19937 random(99);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int i = 0; i < 8; ++i) {
    const int groups = static_cast<int>(pick(1, 8));
    const int64_t channels = groups * pick(1, 20), second = channels > 1 ? pick(0, channels - 1) : 0;
    out.push_back({{pick(1, 3), pick(1, 30), pick(1, 30), channels - second}, groups, second});
  }
  return out;
}

using Param = std::tuple<std::string, DType, size_t>;
std::string name_of(const testing::TestParamInfo<Param>& info) {
  return fmt::format("{}_{}_{}", std::get<0>(info.param), std::get<1>(info.param), std::get<2>(info.param));
}
const auto kImpls = testing::Values("host", "scalar", "scalar_whole", "scalar_cluster", "scalar_resident");
const auto kTypes = testing::Values(DType::kF32, DType::kBF16, DType::kF16);

class GroupNormTest : public testing::TestWithParam<Param> {};
INSTANTIATE_TEST_SUITE_P(Shapes, GroupNormTest,
                         testing::Combine(kImpls, kTypes, testing::Range<size_t>(0, cases().size())),
                         name_of);

TEST_P(GroupNormTest, MatchesReference) {
  const auto& [impl, dtype, index] = GetParam();
  const Case c = cases()[index];
  Shape second_shape = c.shape;
  second_shape[3] = c.second;
  const Tensor x = random_tensor(c.shape, dtype, 1, 3.0f), second = random_tensor(second_shape, dtype, 2);
  const NormWeight w = random_weight(c.shape[3] + c.second, 3);
  const auto op = [&](Exec& ex) {
    return group_norm(ex, x, w, {.groups = c.groups, .act = c.act, .second = c.second ? &second : nullptr});
  };
  with_implementation("group_norm", impl, [&] {
    TestExec test;
    const Tensor got = op(test.ex);
    EXPECT_EQ(got.dim(3), c.shape[3] + c.second);
    const int64_t count = c.shape[1] * c.shape[2] * got.dim(3) / c.groups;
    expect_tensor_near(got, reference("group_norm", op), reduction_tolerance(dtype, count));
    expect_same_bits_when_replayed(op);
    if (c.second) return;
    const Tensor over = random_tensor(c.shape, dtype, 1, 3.0f);  // x again
    const Tensor same = group_norm(test.ex, over, w, {.groups = c.groups, .act = c.act, .in_place = true});
    EXPECT_EQ(same.data(), over.data());
    EXPECT_EQ(to_doubles(same), to_doubles(got));
  });
}

// What lies between layers is float, what products read bf16.
TEST_P(GroupNormTest, FloatGivesBf16) {
  const auto& [impl, dtype, index] = GetParam();
  if (dtype != DType::kF32) GTEST_SKIP() << "of float only";
  const Case c = cases()[index];
  Shape second_shape = c.shape;
  second_shape[3] = c.second;
  const Tensor x = random_tensor(c.shape, dtype, 4, 3.0f), second = random_tensor(second_shape, dtype, 5);
  const NormWeight w = random_weight(c.shape[3] + c.second, 6);
  const auto op = [&](Exec& ex) {
    return group_norm(
        ex, x, w,
        {.groups = c.groups, .act = c.act, .second = c.second ? &second : nullptr, .dtype = DType::kBF16});
  };
  with_implementation("group_norm", impl, [&] {
    TestExec test;
    const Tensor got = op(test.ex);
    EXPECT_EQ(got.dtype(), DType::kBF16);
    const int64_t count = c.shape[1] * c.shape[2] * got.dim(3) / c.groups;
    expect_tensor_near(got, reference("group_norm", op), reduction_tolerance(DType::kBF16, count));
    expect_same_bits_when_replayed(op);
  });
}

// layer_norm has one portable body.
std::string layer_norm_impl(const std::string& impl) { return impl.starts_with("scalar") ? "scalar" : impl; }

class NormImplTest : public testing::TestWithParam<std::tuple<std::string, DType>> {};
INSTANTIATE_TEST_SUITE_P(All, NormImplTest, testing::Combine(kImpls, kTypes), [](const auto& info) {
  return fmt::format("{}_{}", std::get<0>(info.param), std::get<1>(info.param));
});

// A mean a thousand deviations away: E[x^2] - E[x]^2 in float would have no correct digit left.
TEST_P(NormImplTest, KeepsTheVarianceUnderALargeMean) {
  const auto& [impl, dtype] = GetParam();
  if (dtype != DType::kF32) GTEST_SKIP() << "16 bits cannot hold a thousand deviations";
  std::vector<float> values = to_floats(host_device(), random_tensor({1, 40, 40, 64}, dtype, 5));
  for (float& v : values) v += 1000.0f;
  const Tensor x = tensor_from(host_device(), {1, 40, 40, 64}, values.data());
  const NormWeight w = random_weight(64, 6);
  // The rounding of the mean to float is 1000 * 2^-24 deviations, that of each block's mean as much again.
  const double tolerance = 4 * 1000 * unit_roundoff(DType::kF32);
  with_implementation("group_norm", impl, [&] {
    const auto op = [&](Exec& ex) { return group_norm(ex, x, w, {.groups = 8}); };
    TestExec test;
    expect_tensor_near(op(test.ex), reference("group_norm", op), tolerance);
  });
  // Here the sum of the row is a float too: the error of its mean, in deviations.
  with_implementation("layer_norm", layer_norm_impl(impl), [&] {
    const auto op = [&](Exec& ex) { return layer_norm(ex, x, w); };
    TestExec test;
    expect_tensor_near(op(test.ex), reference("layer_norm", op), 1000 * reduction_tolerance(DType::kF32, 64));
  });
}

TEST_P(NormImplTest, LayerNormMatchesReference) {
  const auto& [impl, dtype] = GetParam();
  for (const Shape& shape : {Shape{1, 1}, Shape{7}, Shape{3, 5, 31}, Shape{2, 77, 768}, Shape{1, 300, 320},
                             Shape{4, 1280}, Shape{0, 16}, Shape{5, 2049}}) {
    const Tensor x = random_tensor(shape, dtype, 8, 2.0f);
    const NormWeight w = random_weight(shape[-1], 9);
    const auto op = [&](Exec& ex) { return layer_norm(ex, x, w); };
    const auto rounded = [&](Exec& ex) { return layer_norm(ex, x, w, 1e-5f, DType::kBF16); };
    with_implementation("layer_norm", layer_norm_impl(impl), [&] {
      TestExec test;
      expect_tensor_near(op(test.ex), reference("layer_norm", op), reduction_tolerance(dtype, shape[-1]),
                         concat(shape));
      expect_same_bits_when_replayed(op);
      if (dtype == DType::kF16) {
        EXPECT_THROW(rounded(test.ex), UsageError);
        return;
      }
      expect_tensor_near(rounded(test.ex), reference("layer_norm", rounded),
                         reduction_tolerance(DType::kBF16, shape[-1]), concat(shape, " to bf16"));
      expect_same_bits_when_replayed(rounded);
    });
  }
}

TEST_P(NormImplTest, ShowsNaN) {
  const auto& [impl, dtype] = GetParam();
  std::vector<float> values(2 * 4 * 8, 0.5f);
  values[3] = std::numeric_limits<float>::quiet_NaN();  // image 0, group 0 of two
  const Tensor x = tensor_from(host_device(), {2, 2, 2, 8}, values.data(), dtype);
  with_implementation("group_norm", impl, [&] {
    TestExec test;
    const std::vector<double> got = to_doubles(group_norm(test.ex, x, random_weight(8, 1), {.groups = 2}));
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i < 32 && i % 8 < 4) << i;
  });
}

GroupNormProblem f16_problem(int64_t images, int64_t pixels, int64_t channels, int64_t second = 0) {
  return {.images = images,
          .pixels = pixels,
          .channels = channels,
          .second_channels = second,
          .groups = 32,
          .dtype = DType::kF16};
}
GpuTraits hopper() {
  GpuTraits traits;
  traits.compute_units = 132;
  traits.lds_per_group = 232448;
  traits.cluster = 8;
  return traits;
}

// The plans that were measured to be the fastest on an H200, or within a hundredth of them.
TEST(GroupNormPlan, DefaultsOnHopperAreTheFastest) {
  const auto chosen = [](const GroupNormProblem& p) { return default_group_norm(p, hopper()).describe(); };
  EXPECT_EQ(chosen(f16_problem(2, 16384, 320)), "resident parts 66 packs 16");
  EXPECT_EQ(chosen(f16_problem(2, 16384, 960, 320)), "resident parts 66 packs 22");
  EXPECT_EQ(chosen(f16_problem(2, 4096, 1280, 640)), "resident parts 66 packs 16");
  EXPECT_EQ(chosen(f16_problem(2, 4096, 640)), "parts v8 slab 160 parts 32 pieces 32");
  EXPECT_EQ(chosen(f16_problem(1, 16384, 512)), "parts v8 slab 128 parts 64 pieces 64");
  EXPECT_EQ(chosen(f16_problem(2, 1024, 1280)), "cluster of 2 p6 slab 40");
  EXPECT_EQ(chosen(f16_problem(2, 1024, 2560, 1280)), "cluster of 2 p11 slab 80");
  EXPECT_EQ(chosen(f16_problem(2, 4096, 320)), "cluster of 8 p11 slab 80");
  EXPECT_EQ(chosen(f16_problem(2, 64, 1280)), "whole v8 t256");
}

// Without clusters nothing waits for other workgroups.
TEST(GroupNormPlan, ResidentPlansFitTheDevice) {
  const GroupNormProblem p = f16_problem(3, 5000, 960, 320);
  GpuTraits traits = hopper();
  const GroupNormPlan plan = group_norm_resident(p, traits).value();
  EXPECT_LE(p.images * plan.parts, traits.compute_units);
  EXPECT_GE(plan.part * plan.parts, p.pixels);
  EXPECT_LT(plan.part * (plan.parts - 1), p.pixels);  // no part is empty
  EXPECT_LE(resident_bytes(p, plan), static_cast<int64_t>(traits.lds_per_group));
  EXPECT_FALSE(group_norm_resident(f16_problem(133, 4096, 320), traits));
  traits.cluster = 1;
  for (const GroupNormPlan& other : group_norm_candidates(p, traits)) EXPECT_EQ(other.resident_packs, 0);
}

TEST(NormChecks, NameWhatDoesNotFit) {
  TestExec test;
  const Tensor x = random_tensor({1, 2, 2, 6}, DType::kF32, 1);
  const NormWeight w = random_weight(6, 1);
  const auto group = [&](const Tensor& t, const NormWeight& weight, GroupNormArgs args) {
    return message_of<Error>([&] { group_norm(test.ex, t, weight, args); });
  };
  EXPECT_THAT(group(x, w, {.groups = 4}), HasSubstr("cannot split the channels of [1,2,2,6] into 4 groups"));
  EXPECT_THAT(group(x, w, {.groups = 0}), HasSubstr("into 0 groups"));
  EXPECT_THAT(group(x, random_weight(5, 1), {.groups = 2}), HasSubstr("gain must be f32 [6], is f32 [5]"));
  EXPECT_THAT(group(x, NormWeight{w.gain, Tensor()}, {.groups = 2}),
              HasSubstr("bias must be f32 [6], is missing"));
  EXPECT_THAT(group(x, w, {.groups = 2, .act = Activation::kGelu}), HasSubstr("activation 'gelu'"));
  EXPECT_THAT(group(random_tensor({2, 6}, DType::kF32, 1), w, {.groups = 2}),
              HasSubstr("x must be [N,H,W,C]"));
  const Tensor second = random_tensor({1, 2, 3, 6}, DType::kF32, 1);
  EXPECT_THAT(group(x, w, {.groups = 2, .second = &second}), HasSubstr("second [1,2,3,6] does not fit x"));
  EXPECT_THAT(group(x, random_weight(12, 1), {.groups = 2, .second = &x, .in_place = true}),
              HasSubstr("in place is for one input"));
  EXPECT_THAT(group(x, w, {.groups = 2, .dtype = DType::kBF16, .in_place = true}), HasSubstr("in place"));
  EXPECT_THAT(message_of<Error>([&] { layer_norm(test.ex, x, random_weight(7, 1)); }),
              HasSubstr("gain must be f32 [6]"));
  EXPECT_THAT(
      message_of<Error>([&] { layer_norm(test.ex, make_tensor(host_device(), {6}, DType::kI32), w); }),
      HasSubstr("x must be f32, bf16 or f16, is i32"));
  EXPECT_THAT(message_of<Error>([&] { layer_norm(test.ex, x.narrow(3, 0, 3), random_weight(3, 1)); }),
              HasSubstr("must be contiguous"));
}

}  // namespace
}  // namespace rocm_sd
