// Every configuration of linear's GPU kernels against the double-precision reference on the host.
#include "kernels/gemm/linear.hpp"

#include <gtest/gtest.h>

#include <functional>

#include <algorithm>

#include <cmath>
#include <optional>

#include "base/format.hpp"
#include "gpu_tests/poisoned_gpu.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/family/kernel_tables.hpp"
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
  int64_t extra_columns = 0;     // x is the end of rows that are this much longer
  int64_t scales = 0, rank = 0;  // images with a scale of channels each, rank of a low-rank term; 0: none
};

std::string describe(const Case& c) {
  return fmt::format("{}x{}x{}{}{}{} act {} extra {} scales {} rank {}", c.rows, c.out, c.in,
                     c.bias ? " bias" : "", c.residual ? " residual" : "", c.gated ? " gated" : "",
                     activation_name(c.act), c.extra_columns, c.scales, c.rank);
}

// Operands on the host and on the GPU.
struct Operands {
  Tensor x, weight, bias, residual, scale, states, up;  // host; x is the whole, longer rows
  Tensor gpu_x, gpu_residual, gpu_scale, gpu_states;
  LinearWeight gpu_weight;
  Weight gpu_up;
  LowRankProduct gpu_term{&gpu_states, &gpu_up};

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
    if (c.scales) gpu_scale = test.to_gpu(scale = random_tensor({c.scales, c.out}, DType::kF32, seed + 4));
    if (c.rank == 0) return;
    states = random_tensor({c.rows, c.rank}, dtype, seed + 5);
    up = random_tensor({columns, c.rank}, dtype, seed + 6, 1 / std::sqrt(static_cast<float>(c.rank)));
    gpu_states = test.to_gpu(states);
    gpu_up = Weight(test.to_gpu(up));
  }
  Operands(const Operands&) = delete;  // the term points here

  // What the kernels under test are asked for.
  Epilogue epilogue(const Case& c) const {
    return {.residual = c.residual ? &gpu_residual : nullptr,
            .act = c.act,
            .channel_scale = c.scales ? &gpu_scale : nullptr,
            .low_rank = c.rank ? &gpu_term : nullptr};
  }

  // The reference's rows [first, first + count), in double from the rounded operands, rounded once.
  std::vector<double> reference(const Case& c, int64_t first, int64_t count) const {
    TestExec host;
    const ForcedImpl only("linear", "ref");
    LinearWeight w{Weight(weight), std::nullopt};
    if (c.bias) w.bias = bias;
    const Tensor rows = x.narrow(0, first, count).narrow(-1, c.extra_columns, c.in);
    const Weight host_up = c.rank ? Weight(up) : Weight();
    const Tensor of_rows = c.rank ? states.narrow(0, first, count) : Tensor();
    const LowRankProduct term{&of_rows, &host_up};
    if (c.gated) return to_doubles(linear_geglu(host.ex, rows, w, c.rank ? &term : nullptr));
    const Tensor addend = residual.narrow(0, first, count);
    const Tensor of_row = c.scales ? scales_of(c, first, count) : Tensor();
    return to_doubles(linear(host.ex, rows, w,
                             {.residual = c.residual ? &addend : nullptr,
                              .act = c.act,
                              .dtype = residual.dtype(),
                              .channel_scale = c.scales ? &of_row : nullptr,
                              .low_rank = c.rank ? &term : nullptr}));
  }
  // One row for each of rows [first, first + count).
  Tensor scales_of(const Case& c, int64_t first, int64_t count) const {
    std::vector<float> out;
    const float* const from = scale.as<float>();
    for (int64_t row = first; row < first + count; ++row) {
      const float* const of_part = from + row / (c.rows / c.scales) * c.out;
      out.insert(out.end(), of_part, of_part + c.out);
    }
    return tensor_from(host_device(), {count, c.out}, out.data());
  }
};

// A few evenly spread rows, for the reference is slow: all of a small problem.
std::vector<std::pair<int64_t, int64_t>> stretches(int64_t rows, int64_t outputs) {
  if (rows * outputs <= 100'000) return {{0, rows}};
  std::vector<std::pair<int64_t, int64_t>> out = {{0, 1}, {rows / 2 + 5, 1}, {rows - 1, 1}};
  for (int i = 1; i < 8; ++i) out.emplace_back(std::min(rows * i / 8 + 37 * i % 128, rows - 1), 1);
  return out;
}

// Those that `wanted_choice` wants; there has to be one.
void check_candidates(const std::vector<Case>& cases, DType dtype, std::optional<DType> asked,
                      const std::function<bool(const GemmChoice&)>& wanted_choice) {
  const DType result = asked.value_or(dtype);
  uint64_t seed = 1;
  for (const Case& c : cases) {
    GpuTestExec test;
    const Operands operands(test, c, dtype, seed += 10, result);
    const Epilogue epilogue = operands.epilogue(c);
    const auto problem = [&](const Tensor& y) {
      return LinearProblem{operands.gpu_x, operands.gpu_weight,   epilogue, c.gated, y, c.rows, c.in,
                           c.out,          c.in + c.extra_columns};
    };
    const LinearProblem any = problem(operands.gpu_residual);
    auto candidates = linear_candidates(test.device.traits(), any);
    std::erase_if(candidates, [&](const GemmChoice& choice) { return !wanted_choice(choice); });
    ASSERT_FALSE(candidates.empty()) << describe(c);
    const auto parts = stretches(c.rows, c.out);
    std::vector<std::vector<double>> wanted;
    for (const auto& [first, count] : parts) wanted.push_back(operands.reference(c, first, count));
    for (const GemmChoice& choice : candidates) {
      ASSERT_TRUE(test.device.find_kernel(gemm_kernel_name(test.device.traits(), choice, dtype, c.gated)))
          << gemm_kernel_name(test.device.traits(), choice, dtype, c.gated);
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

void check_every_candidate(const std::vector<Case>& cases, DType dtype,
                           std::optional<DType> asked = std::nullopt) {
  check_candidates(cases, dtype, asked, [](const GemmChoice&) { return true; });
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

// Main loops take several steps in turn: depths of one step and more, until every number of them was left
// over.
TEST_P(GpuLinearTest, EveryNumberOfSteps) {
  std::vector<Case> cases;
  for (const int64_t steps : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18})
    cases.push_back({35, 32 * steps, 40});
  check_every_candidate(cases, GetParam());
}

// More tiles than compute units: those of the last round alone are cut.
TEST_P(GpuLinearTest, TilesOfTheLastRound) {
  const GpuTestExec test;
  const GpuTraits& traits = test.device.traits();
  if (!kernel_tables(traits).sums_parts()) GTEST_SKIP() << "another launch sums parts";
  const int64_t rows = (traits.compute_units + 3) * 32 - 5, columns = GetParam() == DType::kF32 ? 32 : 64;
  const auto in_last_round = [](const GemmChoice& choice) {
    return choice.split_tiles == SharedTileSet::kLastRound;
  };
  check_candidates({{rows, 520, columns, true, true},
                    {rows, 520, columns, true, false, false, Activation::kSilu, 0, 0, 40}},
                   GetParam(), std::nullopt, in_last_round);
  if (GetParam() == DType::kF32) return;
  check_candidates({{(traits.compute_units + 3) * 64, 264, 64, true, false, true}}, GetParam(), std::nullopt,
                   in_last_round);
}

// Terms of ranks that fill steps and that do not, a scale for each image, both with all else.
TEST_P(GpuLinearTest, OddShapesWithTerms) {
  const std::vector<Case> cases = {
      {70, 72, 136, true, true, false, Activation::kNone, 0, 0, 32},
      {130, 136, 168, true, false, false, Activation::kGelu, 8, 0, 96},
      {33, 264, 72, false, true, false, Activation::kSilu, 0, 3, 40},
      {36, 600, 64, false, false, false, Activation::kNone, 0, 4},
      {6, 320, 96, false, false, false, Activation::kNone, 0, 2},
      {12, 328, 13, true, true, false, Activation::kNone, 0, 2, 8},
      {67, 88, 72, true, false, true, Activation::kNone, 0, 0, 32},
      {131, 328, 40, false, false, true, Activation::kNone, 8, 0, 72},
  };
  check_every_candidate(cases, GetParam());
}

TEST_P(GpuLinearTest, TermsOfWholeBlocks) {
  const std::vector<Case> cases = {
      {300, 136, 320, true, true, false, Activation::kNone, 0, 0, 32},
      {516, 1032, 160, true, true, false, Activation::kNone, 0, 2, 96},
      {200, 1280, 32, false, false, false, Activation::kNone, 0, 4},
      {400, 136, 192, true, false, true, Activation::kNone, 0, 0, 64},
      {130, 520, 96, true, false, false, Activation::kGelu, 0, 2, 136},
  };
  check_every_candidate(cases, GetParam());
}

// Through the op, which adds the term by the kernel or by a product of its own, whatever the type of y.
TEST_P(GpuLinearTest, AddsTermsWhereNoKernelDoes) {
  for (const int64_t rows : {3, 40})
    for (const DType result : {GetParam(), DType::kF32}) {
      if (result != GetParam() && GetParam() != DType::kBF16) continue;
      const Case c{rows, 72, 64, true, true, false, Activation::kNone, 0, 0, 32};
      GpuTestExec test;
      const Operands operands(test, c, GetParam(), 5, result);
      Epilogue epilogue = operands.epilogue(c);
      epilogue.dtype = result;
      const auto got = to_floats(test.device, linear(test.ex, operands.gpu_x, operands.gpu_weight, epilogue));
      // Of two products the first one is rounded to y's type before the second adds it.
      expect_near({got.begin(), got.end()}, operands.reference(c, 0, c.rows),
                  2 * reduction_tolerance(result, c.in + c.rank));
    }
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

// Through the op, which gives rows of other depths zeros behind them: more rows than the kernel for few rows
// has workgroups for, too.
TEST_P(GpuLinearTest, ManyUnalignedRows) {
  GpuTestExec test;
  for (const Case& c :
       {Case{262150, 3, 5}, Case{70, 181, 90, true, true}, Case{33, 45, 36, true, false, true}}) {
    const Operands operands(test, c, GetParam(), 9);
    const Tensor y = c.gated ? linear_geglu(test.ex, operands.gpu_x, operands.gpu_weight)
                             : linear(test.ex, operands.gpu_x, operands.gpu_weight,
                                      {.residual = c.residual ? &operands.gpu_residual : nullptr});
    const std::vector<float> got = to_floats(test.device, y);
    expect_near({got.begin(), got.end()}, operands.reference(c, 0, c.rows),
                reduction_tolerance(GetParam(), c.in), describe(c));
    EXPECT_EQ(to_floats(test.device, operands.gpu_weight.weight.plain()),
              to_floats(host_device(), operands.weight));
  }
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

// x and the states come from the launches right before, as a run-time LoRA's do: where the product begins
// beside the one of its states it gives the same bits as one that waits, whatever the replay before left in
// memory.
TEST_P(GpuLinearTest, BeginsBesideItsStates) {
  const bool emulated = test_gpu_is_emulated();
  const int64_t rows = emulated ? 70 : 2048, in = emulated ? 64 : 1280, out = emulated ? 96 : 1280, rank = 32;
  GpuTestExec test;
  const auto weight = [&](int64_t columns, int64_t depth, uint64_t seed) {
    return LinearWeight{Weight(test.to_gpu(random_tensor({columns, depth}, GetParam(), seed,
                                                         1 / std::sqrt(static_cast<float>(depth))))),
                        std::nullopt};
  };
  const LinearWeight before = weight(in, in, 1), down = weight(rank, in, 2), w = weight(out, in, 3),
                     gated = weight(2 * out, in, 5);
  const Weight up = weight(out, rank, 4).weight, gated_up = weight(2 * out, rank, 6).weight;
  const Tensor input = make_tensor(test.device, {rows, in}, GetParam());
  std::vector<Tensor> kept;
  for (int i = 0; i < 4; ++i) kept.push_back(make_tensor(test.device, {rows, out}, GetParam()));
  Arena arena(test.device);
  Program program("linear", arena, [&](Exec& ex) {
    for (const bool late : {false, true}) {
      const auto keep = [&](const Tensor& y, const Tensor& to) { copy_into(ex, y, to); };
      for (const bool geglu : {false, true}) {
        const Tensor x = linear(ex, input, before), states = linear(ex, x, down);
        const LowRankProduct term{&states, geglu ? &gated_up : &up, late};
        keep(geglu ? linear_geglu(ex, x, gated, &term) : linear(ex, x, w, {.low_rank = &term}),
             kept[static_cast<size_t>(2 * late + geglu)]);
      }
    }
  });
  for (uint64_t i = 0; i < (emulated ? 2u : 30u); ++i) {
    const Tensor values = random_tensor({rows, in}, GetParam(), 100 + i);
    test.device.copy_to_device(input.data(), values.data(), values.bytes());
    program.run();
    for (size_t form : {0, 1})
      ASSERT_EQ(to_floats(test.device, kept[form]), to_floats(test.device, kept[2 + form]))
          << i << " " << form;
  }
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

// And on CDNA the products whose tiles come to LDS without a register between, of whole steps and of others.
TEST(GpuLinear, LoadsToLdsAreCandidatesOnCdna) {
  GpuTestExec test;
  const Case c{70, 136, 72};
  const Operands operands(test, c, DType::kF16, 3);
  const Epilogue none;
  const LinearProblem p{
      operands.gpu_x, operands.gpu_weight, none, false, operands.gpu_residual, 70, 136, 72, 136};
  int found = 0;
  for (const GemmChoice& choice : linear_candidates(test.device.traits(), p))
    found += choice.config && choice.config->algorithm == GemmAlgorithm::kLoadsToLds;
  EXPECT_EQ(found > 0, kernel_tables(test.device.traits()).name == std::string_view("cdna3"));
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
