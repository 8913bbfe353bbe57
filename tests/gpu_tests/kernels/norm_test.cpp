// group_norm and layer_norm on the GPU: every plan and type against the double-precision reference.
#include "kernels/norm/norm.hpp"

#include <gtest/gtest.h>

#include "base/format.hpp"
#include "gpu_tests/against_reference.hpp"
#include "kernels/gpu_launch.hpp"
#include "kernels/norm/norm_plan.hpp"
#include "support/model_shapes.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

struct Case {
  int64_t images = 1, pixels = 1, first = 1, second = 0;
  int groups = 1;
  bool silu = false;
};
std::string describe(const Case& c, DType dtype) {
  return fmt::format("{} [{},{},{}+{}] groups {}{}", dtype, c.images, c.pixels, c.first, c.second, c.groups,
                     c.silu ? " silu" : "");
}

// random_cases: how many of random extents follow those that were thought out.
std::vector<Case> small_cases(int random_cases) {
  std::vector<Case> out = {
      {1, 1, 1, 0, 1},
      {2, 15, 8, 0, 4},
      {1, 64, 320, 0, 32, true},
      {2, 35, 33, 0, 3},
      {2, 16, 6, 4, 5, true},        // groups of two straddle the border
      {1, 16, 10, 6, 4},             // of four
      {1, 1517, 32, 0, 32},          // groups of one
      {2, 256, 640, 320, 32, true},  // of thirty, one straddles
      {1, 300, 128, 0, 32, true},    // of four: two to a pack
      {1, 900, 40, 24, 8},
      {1, 2, 1024, 0, 1},  // all channels one group
      {3, 77, 24, 0, 2, true},
      {1, 70000, 8, 0, 2},  // many parts
  };
  std::mt19937 random(99);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int i = 0; i < random_cases; ++i) {
    const int groups = static_cast<int>(pick(1, 16));
    const int64_t unit = i % 2 ? 1 : 8, channels = groups * pick(1, 12) * unit;
    const int64_t second = channels > unit ? pick(0, channels / unit - 1) * unit : 0;
    out.push_back({pick(1, 3), pick(1, 600), channels - second, second, groups, pick(0, 1) == 1});
  }
  return out;
}

class GpuNormTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, GpuNormTest, testing::Values(DType::kF16, DType::kBF16, DType::kF32),
                         [](const auto& info) { return fmt::format("{}", info.param); });

void check_every_plan(const Case& c, DType dtype, std::optional<DType> asked = std::nullopt) {
  const DType result = asked.value_or(dtype);
  const Tensor x = random_tensor({c.images, c.pixels, 1, c.first}, dtype, 1, 3.0f),
               second = random_tensor({c.images, c.pixels, 1, c.second}, dtype, 2);
  const int64_t channels = c.first + c.second;
  const Tensor gain = random_tensor({channels}, DType::kF32, 3),
               bias = random_tensor({channels}, DType::kF32, 4);
  const std::vector<double> want = on_host("group_norm", [&](Exec& ex, const Place&) {
    return group_norm(ex, x, {gain, bias},
                      {.groups = c.groups,
                       .act = c.silu ? Activation::kSilu : Activation::kNone,
                       .second = c.second ? &second : nullptr,
                       .dtype = result});
  });
  GpuTestExec gpu;
  const Tensor gx = gpu.to_gpu(x), gs = gpu.to_gpu(second), gg = gpu.to_gpu(gain), gb = gpu.to_gpu(bias);
  GroupNormProblem problem{.x = gx.data(),
                           .second = c.second ? gs.data() : nullptr,
                           .gain = gg.as<float>(),
                           .bias = gb.as<float>(),
                           .images = c.images,
                           .pixels = c.pixels,
                           .channels = channels,
                           .second_channels = c.second,
                           .groups = c.groups,
                           .eps = 1e-5f,
                           .silu = c.silu,
                           .dtype = dtype,
                           .to_bf16 = result != dtype};
  ASSERT_FALSE(supports_group_norm_gpu(gpu.ex, problem)) << *supports_group_norm_gpu(gpu.ex, problem);
  std::vector<GroupNormPlan> plans = group_norm_candidates(problem, gpu.device.traits());
  // LDS for few packs: what it does not hold is read again.
  if (gpu.device.traits().cluster > 1)
    for (const int parts : {1, 3, 8})
      if (const auto plan = group_norm_resident(problem, gpu.device.traits(), parts, 9))
        plans.push_back(*plan);
  for (GroupNormPlan plan : plans)
    for (const bool merge : {false, true}) {
      if (merge && (plan.whole_threads || plan.cluster_packs || plan.resident_packs)) continue;
      plan.merge |= merge;
      const Tensor y = gpu.ex.alloc({c.images, c.pixels, 1, channels}, result);
      problem.y = y.data();
      run_group_norm_plan(gpu.ex, problem, plan);
      const std::vector<float> got = to_floats(gpu.device, y);
      // The hardware's exponential has a relative error of a few roundoffs at an argument rounded to float.
      expect_near(
          {got.begin(), got.end()}, want,
          reduction_tolerance(result, c.pixels * channels / c.groups) + 16 * unit_roundoff(DType::kF32),
          concat(describe(c, dtype), ": ", plan.describe()));
    }
}

TEST_P(GpuNormTest, GroupNormMatchesReference) {
  for (const Case& c : small_cases(test_gpu_is_emulated() ? 6 : 12)) check_every_plan(c, GetParam());
}
TEST(GpuNorm, GroupNormOfFloatGivesBf16) {
  for (const Case& c : small_cases(test_gpu_is_emulated() ? 2 : 12))
    check_every_plan(c, DType::kF32, DType::kBF16);
}

TEST_P(GpuNormTest, GroupNormThroughTheOpAndAGraph) {
  const DType dtype = GetParam();
  for (const int64_t pixels : {16, 3000}) {
    const Tensor x = random_tensor({2, pixels, 1, 40}, dtype, 1),
                 second = random_tensor({2, pixels, 1, 24}, dtype, 2);
    const Tensor gain = random_tensor({64}, DType::kF32, 3), bias = random_tensor({64}, DType::kF32, 4);
    const PlacedOp op = [&](Exec& ex, const Place& place) {
      const Tensor other = place(second);
      return group_norm(ex, place(x), {place(gain), place(bias)},
                        {.groups = 4, .act = Activation::kSilu, .second = &other});
    };
    expect_like_reference("group_norm", op,
                          reduction_tolerance(dtype, pixels * 16) + 16 * unit_roundoff(DType::kF32));
    expect_same_bits_as_graph(op);
  }
}

// The second norm writes over what the first one wrote.
void expect_in_place(const Shape& shape, DType dtype) {
  const int64_t channels = shape[3], count = shape[1] * channels / 8;
  const Tensor x = random_tensor(shape, dtype, 1);
  const Tensor gain = random_tensor({channels}, DType::kF32, 3),
               bias = random_tensor({channels}, DType::kF32, 4);
  const PlacedOp op = [&](Exec& ex, const Place& place) {
    const NormWeight w{place(gain), place(bias)};
    Tensor h = group_norm(ex, place(x), w, {.groups = 8});
    return group_norm(ex, h, w, {.groups = 8, .act = Activation::kSilu, .in_place = true});
  };
  expect_like_reference("group_norm", op,
                        4 * reduction_tolerance(dtype, count) + 16 * unit_roundoff(DType::kF32));
  expect_same_bits_as_graph(op);
}
TEST_P(GpuNormTest, GroupNormInPlace) {
  for (const int64_t pixels : {16, 900, 3000}) expect_in_place({2, pixels, 1, 64}, GetParam());
}
TEST_P(GpuNormTest, GroupNormInPlaceFull) {
  const VaeNorm norm = finest_vae_norm();
  expect_in_place({1, test_gpu_is_emulated() ? norm.pixels / 4 : norm.pixels, 1, norm.channels}, GetParam());
}

// A view that begins between two multiples of 16 bytes.
TEST_P(GpuNormTest, TakesUnalignedViews) {
  const DType dtype = GetParam();
  const Tensor x = random_tensor({3, 5, 1, 9}, dtype, 1);
  const Tensor gain = random_tensor({9}, DType::kF32, 3), bias = random_tensor({9}, DType::kF32, 4);
  const auto view = [](const Tensor& t) { return t.narrow(0, 1, 2); };
  expect_like_reference(
      "group_norm",
      [&](Exec& ex, const Place& place) {
        return group_norm(ex, view(place(x)), {place(gain), place(bias)}, {.groups = 3});
      },
      reduction_tolerance(dtype, 15));
  expect_like_reference(
      "layer_norm",
      [&](Exec& ex, const Place& place) {
        return layer_norm(ex, view(place(x)), {place(gain), place(bias)});
      },
      reduction_tolerance(dtype, 9));
  const Tensor line = random_tensor({17}, dtype, 5);
  const Tensor gain8 = random_tensor({8}, DType::kF32, 3), bias8 = random_tensor({8}, DType::kF32, 4);
  const auto odd = [](const Tensor& t) { return t.narrow(0, 1, 16); };
  expect_like_reference(
      "layer_norm",
      [&](Exec& ex, const Place& place) {
        return layer_norm(ex, odd(place(line)).reshape({2, 8}), {place(gain8), place(bias8)});
      },
      reduction_tolerance(dtype, 8));
  expect_like_reference(
      "group_norm",
      [&](Exec& ex, const Place& place) {
        return group_norm(ex, odd(place(line)).reshape({1, 2, 1, 8}), {place(gain8), place(bias8)},
                          {.groups = 2});
      },
      reduction_tolerance(dtype, 8));
}

TEST_P(GpuNormTest, LayerNormMatchesReference) {
  const DType dtype = GetParam();
  for (const Shape& shape : {Shape{1, 1}, Shape{7}, Shape{3, 5, 31}, Shape{2, 77, 768}, Shape{1, 300, 320},
                             Shape{70, 640}, Shape{9, 1280}, Shape{3, 2048}, Shape{0, 16}, Shape{5, 2049},
                             Shape{2, 5000}, Shape{6, 40}, Shape{3000, 64}}) {
    const Tensor x = random_tensor(shape, dtype, 8, 2.0f);
    const Tensor gain = random_tensor({shape[-1]}, DType::kF32, 9),
                 bias = random_tensor({shape[-1]}, DType::kF32, 10);
    const PlacedOp op = [&](Exec& ex, const Place& place) {
      return layer_norm(ex, place(x), {place(gain), place(bias)});
    };
    expect_like_reference("layer_norm", op, reduction_tolerance(dtype, shape[-1]), concat(dtype, " ", shape));
    if (dtype != DType::kF32) continue;
    const PlacedOp rounded = [&](Exec& ex, const Place& place) {
      return layer_norm(ex, place(x), {place(gain), place(bias)}, 1e-5f, DType::kBF16);
    };
    expect_like_reference("layer_norm", rounded, reduction_tolerance(DType::kBF16, shape[-1]),
                          concat(shape, " to bf16"));
  }
}

// A mean a thousand deviations away: E[x^2] - E[x]^2 in float would have no correct digit left.
TEST(GpuNorm, KeepsTheVarianceUnderALargeMean) {
  for (const int64_t pixels : {64, 1600}) {
    std::vector<float> values = to_floats(host_device(), random_tensor({1, pixels, 1, 64}, DType::kF32, 5));
    for (float& v : values) v += 1000.0f;
    const Tensor x = tensor_from(host_device(), {1, pixels, 1, 64}, values.data());
    const Tensor gain = random_tensor({64}, DType::kF32, 6), bias = random_tensor({64}, DType::kF32, 7);
    // The rounding of the mean to float is 1000 * 2^-24 deviations, that of each part's mean as much again.
    expect_like_reference(
        "group_norm",
        [&](Exec& ex, const Place& place) {
          return group_norm(ex, place(x), {place(gain), place(bias)}, {.groups = 8});
        },
        4 * 1000 * unit_roundoff(DType::kF32), concat(pixels));
    expect_like_reference(
        "layer_norm",
        [&](Exec& ex, const Place& place) { return layer_norm(ex, place(x), {place(gain), place(bias)}); },
        1000 * reduction_tolerance(DType::kF32, 64));
  }
}

// The first element, to which sums are relative, is far from all others.
TEST(GpuNorm, BearsAnOutlierInFront) {
  std::vector<float> values = to_floats(host_device(), random_tensor({1, 5000, 1, 32}, DType::kF32, 5));
  for (size_t c = 0; c < 32; ++c) values[c] = 300.0f;
  const Tensor x = tensor_from(host_device(), {1, 5000, 1, 32}, values.data());
  const Tensor gain = random_tensor({32}, DType::kF32, 6), bias = random_tensor({32}, DType::kF32, 7);
  expect_like_reference(
      "group_norm",
      [&](Exec& ex, const Place& place) {
        return group_norm(ex, place(x), {place(gain), place(bias)}, {.groups = 4});
      },
      reduction_tolerance(DType::kF32, 40000));
}

TEST(GpuNorm, RefusesGroupsWiderThanAWorkgroup) {
  GpuTestExec gpu;
  const GroupNormProblem problem{.images = 1, .pixels = 2, .channels = 2048, .groups = 1};  // f32
  const Refusal refusal = supports_group_norm_gpu(gpu.ex, problem);
  ASSERT_TRUE(refusal);
  EXPECT_NE(refusal->find("at most 1024 channels"), std::string::npos) << *refusal;
}

TEST(GpuNorm, ShowsNaN) {
  std::vector<float> values(2 * 4 * 16, 0.5f);
  values[3] = std::numeric_limits<float>::quiet_NaN();  // image 0, group 0 of two
  const Tensor x = tensor_from(host_device(), {2, 2, 2, 16}, values.data(), DType::kF16);
  const Tensor gain = random_tensor({16}, DType::kF32, 6), bias = random_tensor({16}, DType::kF32, 7);
  GpuTestExec gpu;
  const GroupNormProblem base{.gain = nullptr, .images = 2, .pixels = 4, .channels = 16, .groups = 2};
  const Tensor gx = gpu.to_gpu(x), gg = gpu.to_gpu(gain), gb = gpu.to_gpu(bias);
  GroupNormProblem problem = base;
  problem.x = gx.data();
  problem.gain = gg.as<float>();
  problem.bias = gb.as<float>();
  problem.eps = 1e-5f;
  problem.dtype = DType::kF16;
  for (const GroupNormPlan& plan : group_norm_candidates(problem, gpu.device.traits())) {
    const Tensor y = gpu.ex.alloc({2, 4, 16}, DType::kF16);
    problem.y = y.data();
    run_group_norm_plan(gpu.ex, problem, plan);
    const std::vector<float> got = to_floats(gpu.device, y);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(std::isnan(got[i]), i < 64 && i % 16 < 8) << plan.describe() << " " << i;
  }
}

}  // namespace
}  // namespace rocm_sd
