// Every configuration of linear's GPU kernels against the double-precision reference on the host.
#include "kernels/gemm/linear.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>
#include <optional>

#include "base/format.hpp"
#include "gpu_tests/poisoned_gpu.hpp"
#include "kernels/gemm/linear_gpu.hpp"
#include "kernels/gpu_launch.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd {
namespace {

using namespace testing_support;

struct Case {
  int64_t rows = 0, in = 0, out = 0;
  bool bias = true, residual = false, gated = false;
  Activation act = Activation::kNone;
  int64_t extra_columns = 0;  // x is the end of rows that are this much longer
};

std::string describe(const Case& c) {
  return fmt::format("{}x{}x{}{}{}{} act {} extra {}", c.rows, c.out, c.in, c.bias ? " bias" : "",
                     c.residual ? " residual" : "", c.gated ? " gated" : "", activation_name(c.act),
                     c.extra_columns);
}

// Operands on the host and on the GPU.
struct Operands {
  Tensor x, weight, bias, residual;  // host; x is the whole, longer rows
  Tensor gpu_x, gpu_residual;
  LinearWeight gpu_weight;

  // result: the type of y and of the residual, by default dtype.
  Operands(GpuTestExec& test, const Case& c, DType dtype, uint64_t seed,
           std::optional<DType> result = std::nullopt) {
    const int64_t columns = c.gated ? 2 * c.out : c.out;
    x = random_tensor({c.rows, c.in + c.extra_columns}, dtype, seed);
    weight = random_tensor({columns, c.in}, dtype, seed + 1, 1 / std::sqrt(static_cast<float>(c.in)));
    bias = random_tensor({columns}, DType::kF32, seed + 2);
    residual = random_tensor({c.rows, c.out}, result.value_or(dtype), seed + 3);
    gpu_x = test.to_gpu(x).narrow(-1, c.extra_columns, c.in);
    gpu_residual = test.to_gpu(residual);
    gpu_weight.weight = Weight(test.to_gpu(weight));
    if (c.bias) gpu_weight.bias = test.to_gpu(bias);
  }

  // The reference's rows [first, first + count), in double from the rounded operands, rounded once.
  std::vector<double> reference(const Case& c, int64_t first, int64_t count) const {
    TestExec host;
    const ForcedImpl only("linear", "ref");
    LinearWeight w{Weight(weight), std::nullopt};
    if (c.bias) w.bias = bias;
    const Tensor rows = x.narrow(0, first, count).narrow(-1, c.extra_columns, c.in);
    if (c.gated) return to_doubles(linear_geglu(host.ex, rows, w));
    const Tensor addend = residual.narrow(0, first, count);
    return to_doubles(
        linear(host.ex, rows, w,
               {.residual = c.residual ? &addend : nullptr, .act = c.act, .dtype = residual.dtype()}));
  }
};

// A few evenly spread rows, for the reference is slow: all of a small problem.
std::vector<std::pair<int64_t, int64_t>> stretches(int64_t rows, int64_t outputs) {
  if (rows * outputs <= 100'000) return {{0, rows}};
  std::vector<std::pair<int64_t, int64_t>> out = {{0, 1}, {rows / 2 + 5, 1}, {rows - 1, 1}};
  for (int i = 1; i < 8; ++i) out.emplace_back(std::min(rows * i / 8 + 37 * i % 128, rows - 1), 1);
  return out;
}

void check_every_candidate(const std::vector<Case>& cases, DType dtype,
                           std::optional<DType> asked = std::nullopt) {
  const DType result = asked.value_or(dtype);
  uint64_t seed = 1;
  for (const Case& c : cases) {
    GpuTestExec test;
    const Operands operands(test, c, dtype, seed += 10, result);
    const Epilogue epilogue{.residual = c.residual ? &operands.gpu_residual : nullptr, .act = c.act};
    const auto problem = [&](const Tensor& y) {
      return LinearProblem{operands.gpu_x, operands.gpu_weight,   epilogue, c.gated, y, c.rows, c.in,
                           c.out,          c.in + c.extra_columns};
    };
    const LinearProblem any = problem(operands.gpu_residual);
    const auto candidates = linear_candidates(test.device.traits(), any);
    ASSERT_FALSE(candidates.empty()) << describe(c);
    const auto parts = stretches(c.rows, c.out);
    std::vector<std::vector<double>> wanted;
    for (const auto& [first, count] : parts) wanted.push_back(operands.reference(c, first, count));
    for (const GemmChoice& choice : candidates) {
      ASSERT_TRUE(test.device.find_kernel(gemm_kernel_name(choice, dtype, c.gated)))
          << gemm_kernel_name(choice, dtype, c.gated);
      const Tensor y = test.ex.alloc({c.rows, c.out}, result);
      linear_gpu_as(test.ex, problem(y), choice);
      for (size_t i = 0; i < parts.size(); ++i) {
        const std::vector<float> got = to_floats(test.device, y.narrow(0, parts[i].first, parts[i].second));
        expect_near({got.begin(), got.end()}, wanted[i], reduction_tolerance(result, c.in),
                    concat(describe(choice), " ", dtype, " ", describe(c), " from row ", parts[i].first));
      }
    }
  }
}

class GpuLinearTest : public testing::TestWithParam<DType> {};

TEST_P(GpuLinearTest, OddShapesAndTails) {
  std::vector<Case> cases = {
      {1, 8, 1},
      {2, 320, 1280 / 4, true, false, false, Activation::kSilu},
      {33, 40, 24, false},
      {70, 72, 136, true, true},
      {130, 136, 168, true, false, false, Activation::kGelu},
      {65, 264, 72, true, true, false, Activation::kQuickGelu, 16},
      {19, 64, 30, true, false, false, Activation::kRelu},  // channels that end inside 16 bytes
      {9, 96, 13, true, true, false, Activation::kSilu},
      {67, 88, 72, true, false, true},
      {131, 136, 40, false, false, true, Activation::kNone, 8},
      {3, 48, 24, true, false, true},
      {12, 600, 40, true, true},
      {17, 520, 48, true, false, true},
  };
  check_every_candidate(cases, GetParam());
}

// Whole and split, few rows, wide pieces and channels that end inside one.
TEST(GpuLinear, Bf16GivesFloat) {
  const std::vector<Case> cases = {
      {1, 8, 1},
      {2, 320, 320, true, true},
      {70, 72, 136, true, true},
      {130, 136, 168, false, true, false, Activation::kGelu},
      {9, 96, 13, true, true, false, Activation::kSilu},
      {67, 1032, 72, true, true},
      {5, 7, 13, true, true},
  };
  check_every_candidate(cases, DType::kBF16, DType::kF32);
}

// Depths, strides and offsets that are not of 16-byte pieces.
TEST_P(GpuLinearTest, UnalignedRows) {
  const std::vector<Case> cases = {
      {5, 7, 13, true, true},
      {11, 70, 40, false, false, true},
      {6, 64, 33, true, false, false, Activation::kGelu, 3},
      {1, 1, 1},
  };
  check_every_candidate(cases, GetParam());
}

// What TMA fetches: channels in blocks of 32, tiles and clusters that are not full.
TEST_P(GpuLinearTest, OddShapesOfWholeBlocks) {
  const std::vector<Case> cases = {
      {300, 136, 320, true, true},
      {129, 600, 96, true, false, false, Activation::kGelu},
      {1000, 264, 32, false, true, false, Activation::kSilu, 16},
      {520, 1032, 160, true, true},
      {17, 1280, 544, true, true},
      {400, 136, 192, true, false, true},
      {65, 520, 96, false, false, true, Activation::kNone, 8},
  };
  check_every_candidate(cases, GetParam());
}

// More than two rounds of tiles on every compute unit, of fewer and of more steps than there are stages.
TEST_P(GpuLinearTest, ManyRoundsOfTilesFull) {
  if (GetParam() == DType::kF32 || !test_gpu().traits().tma)
    GTEST_SKIP() << "only TMA's kernels take tiles in rounds: 16-bit types on sm_90";
  check_every_candidate({{4300, 200, 1312, true, true},
                         {4300, 904, 1312, false, true, false, Activation::kSilu},
                         {4100, 136, 672, true, false, true},
                         {4100, 648, 672, true, false, true}},
                        GetParam());
}

// Through the op: dispatch, the plan and the replay give the same bits as an eager run.
TEST_P(GpuLinearTest, ReplaysTheSameBitsFromThePlannedArena) {
  const Case c{150, 640, 96, true, true};
  GpuTestExec test;
  const Operands operands(test, c, GetParam(), 5);
  const Tensor kept = make_tensor(test.device, {c.rows, c.out}, GetParam());
  const auto run = [&](Exec& ex) {
    return linear(ex, operands.gpu_x, operands.gpu_weight, {.residual = &operands.gpu_residual});
  };
  const std::vector<float> eager = to_floats(test.device, run(test.ex));
  Arena arena(test.device);
  Program program("linear", arena, [&](Exec& ex) {
    const Tensor y = run(ex);
    ex.launch({"copy"}, [device = &test.device, to = kept.data(), from = y.data(), bytes = y.bytes()] {
      device->copy_on_device(to, from, bytes);
    });
  });
  for (int i = 0; i < 2; ++i) {
    program.run();
    test.device.synchronize();
    EXPECT_EQ(to_floats(test.device, kept), eager);
  }
  expect_near({eager.begin(), eager.end()}, operands.reference(c, 0, c.rows),
              reduction_tolerance(GetParam(), c.in));
}

INSTANTIATE_TEST_SUITE_P(All, GpuLinearTest, testing::Values(DType::kF16, DType::kBF16, DType::kF32),
                         [](const auto& info) { return concat(info.param); });

// The tests above take every candidate: on Hopper that includes its own products.
TEST(GpuLinear, WarpgroupProductsAreCandidatesOnHopper) {
  GpuTestExec test;
  if (test.device.traits().arch != "sm_90") GTEST_SKIP() << "not a Hopper GPU";
  for (const bool gated : {false, true}) {
    const Case c{256, 128, 256, true, false, gated};
    const Operands operands(test, c, DType::kF16, 3);
    const Epilogue none;
    const LinearProblem p{
        operands.gpu_x, operands.gpu_weight, none, gated, operands.gpu_residual, 256, 128, 256, 128};
    int groups = 0;
    for (const GemmChoice& choice : linear_candidates(test.device.traits(), p))
      groups += choice.config->algorithm != GemmAlgorithm::kTiles;
    EXPECT_GT(groups, 3);
  }
}

TEST(GpuLinear, HostRowsRefuse) {
  GpuTestExec test;
  const Case c{4, 16, 8};
  const Operands operands(test, c, DType::kF16, 3);
  for (const char* impl : {"ref", "scalar", "tiled", "onednn"}) {
    const ForcedImpl only("linear", impl);
    EXPECT_THROW(linear(test.ex, operands.gpu_x, operands.gpu_weight), UsageError) << impl;
  }
}

}  // namespace
}  // namespace rocm_sd
