// The maps: every kernel of every family is taken by a row, every row by a kernel, and the page is current.
#include "kernels/family/kernel_map_page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "kernels/attention/flash_plan.hpp"
#include "kernels/family/cost_model.hpp"
#include "kernels/gemm/linear_gpu.hpp"
#include "support/nominal_gpu.hpp"

namespace rocm_sd {
namespace {

using testing_support::nominal_traits;

constexpr const char* kArchs[] = {"gfx1100", "gfx1201", "gfx942", "sm_80", "sm_90"};

TEST(KernelMap, ThePageIsCurrent) {
  std::ifstream file(ROCM_SD_SOURCE_DIR "/docs/reference/kernel-map.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), kernel_map_page()) << "run `make kernel-map`";
}

TEST(KernelMap, EveryFamilyOfAPossibleTargetHasItsFile) {
  for (const GpuTarget& target : kGpuTargets) {
    GpuTraits traits;
    traits.arch = target.arch;
    traits.family = target.family;
    EXPECT_EQ(kernel_tables(traits).name, target.kernels) << target.arch;
    EXPECT_NO_THROW(cost_model(target.kernels)) << target.arch;
  }
  GpuTraits newer;  // a card that the build does not list runs the kernels of its family
  newer.arch = "sm_120";
  newer.family = GpuFamily::kNvidia;
  EXPECT_EQ(kernel_tables(newer).name, "nvidia");
}

AttentionProblem attention(int64_t head_dim, int64_t keys, bool masked) {
  AttentionProblem p;
  p.dtype = DType::kF16;
  p.batch = 2;
  p.heads = 8;
  p.queries = 1024;
  p.keys = keys;
  p.head_dim = head_dim;
  p.masked = masked;
  return p;
}

// Over the heads and keys of Stable Diffusion no compiled kernel and no row of the map is unreachable.
TEST(KernelMap, EveryKernelAndEveryRowOfAttentionIsReached) {
  std::set<const AttentionMapRow*> rows;
  for (const char* arch : kArchs) {
    const GpuTraits traits = nominal_traits(arch);
    const KernelTables& tables = kernel_tables(traits);
    std::set<std::string> names;
    for (const int64_t dim : {32, 40, 64, 80, 104, 128, 160, 512})
      for (const int64_t keys : {77, 256, 4096})
        for (const bool masked : {false, true})
          for (const FlashKernel& kernel : flash_candidates(attention(dim, keys, masked), traits)) {
            names.insert(kernel.name);
            rows.insert(kernel.row);
            EXPECT_GT(kernel.relative_cost, 0);
          }
    EXPECT_EQ(names.size(), tables.flash.size() + tables.flash_any_mask.size() + tables.flash_wgmma.size() +
                                tables.flash_tma.size() + tables.flash_single_tile_kv.size() +
                                tables.flash_large_d.size() + tables.flash_wgmma_large_d.size())
        << arch;
  }
  EXPECT_EQ(rows.size(), attention_map().size());
}

// No two rows of a table are one kernel, and every algorithm of a table has a row of the map.
TEST(KernelMap, EveryKernelOfGemmsIsReached) {
  for (const KernelTables& family : all_kernel_tables()) {
    const auto check = [&](std::span<const GemmConfig> table, std::span<const GemmMapRow> map,
                           GemmFacts facts) {
      std::set<std::string> names;
      for (const GemmConfig& config : table) {
        EXPECT_TRUE(names.insert(kernel_name(config, "gemm_", "f16").c_str()).second) << describe(config);
        EXPECT_NE(gemm_row(map, family, facts, config.algorithm), nullptr) << family.name << describe(config);
      }
    };
    GemmFacts facts{.columns = 320,
                    .tma_columns = true,
                    .tma_output = true,
                    .whole_blocks = true,
                    .halos = true,
                    .resident = true};
    check(family.gemm, linear_map(), facts);
    check(family.geglu, linear_map(), facts);
    check(family.conv, conv_map(), facts);
    facts.elements = Elements::kF32;
    check(family.gemm_f32, linear_map(), facts);
    check(family.conv_f32, conv_map(), facts);
    facts.elements = Elements::k8Bit;
    check(family.eight_bit_gemm, linear_map(), facts);
    check(family.eight_bit_geglu, linear_map(), facts);
  }
}

TEST(CostModel, EveryFamilyHasTheNumbersOfItsKernels) {
  for (const KernelTables& family : all_kernel_tables()) {
    const CostModel& model = cost_model(family.name);
    for (const AttentionMapRow& row : attention_map())
      if (row.families.has(family.index)) {
        EXPECT_NO_THROW(model.attention.of(row.cost)) << family.name << row.cost;
      }
    for (const GemmConfig& config : family.conv) {
      if (uses_tma(config.algorithm)) {
        EXPECT_TRUE(model.tma && model.tma_ping_pong && model.tma_resident) << family.name;
      }
      if (config.algorithm != GemmAlgorithm::kWgmma) continue;
      EXPECT_TRUE(std::ranges::any_of(model.conv_wgmma.value().steps, [&](const ConvWgmmaCosts::Step& step) {
        return step.rows == config.shape.block_m && step.columns == config.shape.block_n;
      })) << describe(config);
    }
    EXPECT_EQ(!family.eight_bit_gemm.empty(), model.gemm_eight_bit.has_value()) << family.name;
    for (const auto& [name, source] : model.sources)
      if (source.origin != "measured") {
        EXPECT_FALSE(source.note.empty()) << family.name << " " << name;
      }
  }
}

// Damage is named with its place.
TEST(CostModel, ADamagedFileIsRefusedByItsField) {
  const std::string good(embedded_costs().at("rdna3"));
  EXPECT_NO_THROW(parse_cost_model(good, "rdna3.json"));
  const auto damaged = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    try {
      parse_cost_model(text, "rdna3.json");
    } catch (const FormatError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(damaged("\"mma_per_cycle\"", "\"mma_per_circle\""), testing::HasSubstr("mma_per_cycle"));
  EXPECT_THAT(damaged("\"mma_per_cycle\": 220", "\"mma_per_cycle\": \"220\""), testing::HasSubstr("number"));
  EXPECT_THAT(damaged("\"mma_per_cycle\": 220", "\"mma_per_cycle\": -1"), testing::HasSubstr("at least 0"));
  EXPECT_THAT(damaged("\"source\": \"published\"", "\"source\": \"heard\""), testing::HasSubstr("sources"));
  EXPECT_THAT(damaged("\"origin\": \"guessed\"", "\"origin\": \"measured\""), testing::HasSubstr("device"));
  EXPECT_THAT(damaged("\"conv\"", "\"convolution\""), testing::HasSubstr("conv"));
  EXPECT_THAT(damaged("}", ""), testing::HasSubstr("rdna3.json"));
}

}  // namespace
}  // namespace rocm_sd
