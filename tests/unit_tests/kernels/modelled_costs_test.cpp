// Choices by modelled times: every configuration of AMD's 16-bit kernels has one, and choices follow them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/error.hpp"
#include "kernels/attention/flash_plan.hpp"
#include "kernels/conv/conv2d_gpu.hpp"
#include "kernels/family/cost_model.hpp"
#include "kernels/gemm/linear_gpu.hpp"
#include "support/nominal_gpu.hpp"

namespace rocm_sd {
namespace {

using testing_support::nominal_traits;

constexpr const char* kPlayed[] = {"gfx1100", "gfx1201", "gfx942"};  // those that the tests build

const ModelledCosts& costs_of(const GpuTraits& traits) {
  return *cost_model(kernel_tables(traits).name).modelled_for(traits.arch);
}

TEST(ModelledCosts, AsManyWorkgroupsAsFitShareAComputeUnit) {
  const KernelTime kernel{
      .resident = 3, .alone_ns = 10, .alone_step_ns = 1, .full_ns = 20, .full_step_ns = 2};
  EXPECT_DOUBLE_EQ(launch_ns(kernel, 1, 8, 5), 15);  // one alone
  EXPECT_DOUBLE_EQ(launch_ns(kernel, 8, 8, 5), 15);
  EXPECT_DOUBLE_EQ(launch_ns(kernel, 9, 8, 5), 15 + (30 - 15) / 2.0);  // two share the busiest
  EXPECT_DOUBLE_EQ(launch_ns(kernel, 24, 8, 5), 30);
  EXPECT_DOUBLE_EQ(launch_ns(kernel, 25, 8, 5), 30 * 4 / 3.0);  // four, three at a time
  EXPECT_DOUBLE_EQ(launch_ns(kernel, 48, 8, 5), 60);
  const KernelTime lone{.resident = 1, .alone_ns = 10, .alone_step_ns = 1, .full_ns = 10, .full_step_ns = 1};
  EXPECT_DOUBLE_EQ(launch_ns(lone, 17, 8, 5), 45);
  EXPECT_DOUBLE_EQ(launch_ns(lone, 5, 0, 5), 75);  // of a GPU that says it has none: as of one
}

TEST(ModelledCosts, PartialSumsAreALaunchAndTheirBytesThereAndBack) {
  const ModelledCosts costs{.source = "", .launch_ns = 4000, .memory_bytes_per_ns = 800, .kernels = {}};
  EXPECT_DOUBLE_EQ(reduce_ns(costs, 1e6, 4), 4000 + 2 * 4e6 * 4 / 800);
}

TEST(ModelledCosts, Bf16HasTheTimesOfF16) {
  const ModelledCosts costs{
      .source = "",
      .launch_ns = 0,
      .memory_bytes_per_ns = 1,
      .kernels = {{"gemm_f16_64x64x64", {.resident = 2}}, {"flash_bf16_d40", {.resident = 5}}}};
  EXPECT_EQ(find_kernel_time(costs, "gemm_bf16_64x64x64"), find_kernel_time(costs, "gemm_f16_64x64x64"));
  ASSERT_NE(find_kernel_time(costs, "gemm_f16_64x64x64"), nullptr);
  EXPECT_EQ(find_kernel_time(costs, "flash_bf16_d40")->resident, 5);
  EXPECT_EQ(find_kernel_time(costs, "flash_f16_d40"), nullptr);
  EXPECT_EQ(find_kernel_time(costs, "gemm_f32_64x64x64"), nullptr);
}

TEST(ModelledCosts, ATargetThatWasNotPlayedHasItsFamilysTimes) {
  const CostModel& rdna3 = cost_model("rdna3");
  ASSERT_NE(rdna3.modelled_for("gfx1100"), nullptr);
  EXPECT_EQ(rdna3.modelled_for("gfx1102"), rdna3.modelled_for("gfx1100"));
  EXPECT_EQ(cost_model("hopper").modelled_for("sm_90"), nullptr);
}

// Of what is compared with each other all have times, or none: estimates of two kinds do not compare.
TEST(ModelledCosts, EveryConfigurationHasTimes) {
  for (const char* arch : kPlayed) {
    const GpuTraits traits = nominal_traits(arch);
    const KernelTables& family = kernel_tables(traits);
    const ModelledCosts& costs = costs_of(traits);
    ASSERT_TRUE(cost_model(family.name).time_model.contains(arch)) << arch;
    std::set<std::string> names;
    for (const GemmConfig& c : family.gemm) names.insert(gemm_kernel_name(traits, {&c}, DType::kF16, false));
    for (const GemmConfig& c : family.geglu) names.insert(gemm_kernel_name(traits, {&c}, DType::kF16, true));
    for (const GemmConfig& c : family.conv) names.insert(conv_kernel_name(DType::kF16, c));
    for (const int64_t head_dim : {40, 64, 80, 160, 512}) {
      AttentionProblem p;
      p.dtype = DType::kF16;
      p.batch = 2;
      p.heads = 8;
      p.queries = p.keys = 1024;
      p.head_dim = head_dim;
      const auto kernels = flash_candidates(p, traits);
      EXPECT_FALSE(kernels.empty()) << arch << " " << head_dim;
      for (const FlashKernel& kernel : kernels) names.insert(kernel.name);
    }
    for (const std::string& name : names) {
      const KernelTime* time = find_kernel_time(costs, name);
      ASSERT_NE(time, nullptr) << arch << " " << name << ": run tools/report/model_costs.py";
      EXPECT_GE(time->resident, 1) << name;
      EXPECT_GT(time->alone_step_ns, 0) << name;
      // As many as fit take less than one after the other. One alone may take longer than they do: it shares
      // no lines with anybody and awaits the memory.
      EXPECT_GT(time->full_step_ns, 0.5 * time->alone_step_ns) << name;
      EXPECT_LE(time->full_step_ns, 1.01 * static_cast<double>(time->resident) * time->alone_step_ns) << name;
    }
  }
}

TEST(ModelledCosts, TheDefaultHasTheLeastTime) {
  std::mt19937 random(5);
  const auto any = [&](int64_t most) {
    return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  for (const char* arch : kPlayed) {
    const GpuTraits traits = nominal_traits(arch);
    testing_support::NominalGpu gpu(traits);
    const Tensor x = make_tensor(gpu, {1, 8}, DType::kF16);
    const LinearWeight weight;
    const Epilogue none;
    for (int i = 0; i < 200; ++i) {
      const LinearProblem p{.x = x,
                            .w = weight,
                            .epilogue = none,
                            .gated = i % 5 == 0,
                            .y = x,
                            .rows = 16 + any(i % 2 ? 300 : 20000),
                            .in = 8 * any(1000),
                            .out = 8 * any(1000)};
      const GemmReason taken = reason_of(traits, p, linear_default_config(traits, p));
      for (const GemmChoice& choice : linear_candidates(traits, p)) {
        const GemmReason other = reason_of(traits, p, choice);
        if (other.row->rank == taken.row->rank) {
          EXPECT_LE(taken.cost, other.cost) << describe(choice);
        }
      }
      const ConvExtent extent{.pixels = any(20000),
                              .outputs = any(1500),
                              .depth = 72 * any(300),
                              .dtype = DType::kF16,
                              .whole_steps = i % 2 == 0};
      const ConvReason least = reason_of(traits, extent, conv_default(traits, extent));
      EXPECT_GT(least.ns, 0);
      for (const ConvChoice& choice : conv_candidates(traits, extent)) {
        const ConvReason other = reason_of(traits, extent, choice);
        EXPECT_LE(least.row->rank, other.row->rank);
        if (other.row->rank == least.row->rank) {
          EXPECT_LE(least.ns, other.ns) << describe(choice);
        }
      }
    }
  }
}

TEST(ModelledCosts, ADamagedSectionIsRefusedByItsField) {
  const std::string good(embedded_costs().at("rdna3"));
  const auto damaged = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from, text.find("\"time_model\""));
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    try {
      parse_cost_model(text, "rdna3.json");
    } catch (const FormatError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  using testing::HasSubstr;
  EXPECT_THAT(damaged("\"alone_ns\"", "\"lone_ns\""), HasSubstr("alone_ns"));
  EXPECT_THAT(damaged("\"resident\": ", "\"resident\": 0."), HasSubstr("resident"));
  EXPECT_THAT(damaged("\"resident\": ", "\"resident\": -"), HasSubstr("at least 0"));
  EXPECT_THAT(damaged("\"source\": \"", "\"source\": \"no_"), HasSubstr("sources"));
  EXPECT_THAT(damaged("\"memory_bytes_per_ns\": ", "\"memory_bytes_per_ns\": 0, \"x\": "),
              HasSubstr("memory_bytes_per_ns"));
}

}  // namespace
}  // namespace rocm_sd
