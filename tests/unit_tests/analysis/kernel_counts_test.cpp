// What the emulator counted: the files that ship, the kernels that problems name, and damaged files.
#include "analysis/kernel_counts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "analysis/predict.hpp"
#include "base/error.hpp"
#include "base/gpu_family.hpp"
#include "runtime/kernel_archive.hpp"

namespace rocm_sd {
namespace {

std::optional<KernelCounts> counts_of(const char* product) {
  return kernel_counts_for(*find_gpu_product(product));
}

TEST(KernelCounts, TheShippedOnesAreSound) {
  for (const auto& [product, target] :
       {std::pair{"RX 7900 XTX", "gfx1100"}, std::pair{"Radeon 8060S", "gfx1151"},
        std::pair{"RX 9060 XT", "gfx1200"}, std::pair{"RX 9070 XT", "gfx1201"},
        std::pair{"MI250X GCD", "gfx90a"}, std::pair{"MI300X", "gfx942"}}) {
    const auto counts = counts_of(product);
    ASSERT_TRUE(counts.has_value()) << product;
    EXPECT_EQ(counts->target, target);
    EXPECT_GT(counts->kernels.size(), 40u);
    for (const char* op : {"gemm_f16_", "geglu_f16_", "conv_f16_", "flash_f16_d32_", "flash_f16_d40_",
                           "flash_bf16_d64_", "flash_general_f16_d64_"}) {
      const auto first = counts->kernels.lower_bound(op);
      EXPECT_TRUE(first != counts->kernels.end() && first->first.starts_with(op)) << op;
    }
    // The better half of the products spends most of its main loop on matrix instructions.
    double best = 0;
    for (const auto& [name, count] : counts->kernels) best = std::max(best, count.matrix_share);
    EXPECT_GT(best, 0.7) << product;
  }
}

TEST(KernelCounts, StandInForTargetsThatMultiplyAsFast) {
  EXPECT_EQ(counts_of("RX 7800 XT")->target, "gfx1100");
  EXPECT_EQ(counts_of("Radeon 890M")->target, "gfx1100");
  EXPECT_EQ(counts_of("MI325X")->target, "gfx942");
  EXPECT_EQ(counts_of("MI210")->target, "gfx90a");
  for (const char* other : {"MI350X", "H200 SXM"}) EXPECT_FALSE(counts_of(other).has_value()) << other;
}

TEST(KernelCounts, ProblemsNameTheirKernels) {
  const auto name = [](const char* problem) { return kernel_of_problem(problem, DType::kF16); };
  EXPECT_EQ(name("linear gpu 128x64x32 8192x320x320 f16 bias"), "gemm_f16_128x64x32");
  EXPECT_EQ(name("linear gpu 128x64x64g/4 8192x320x320 f16"), "gemm_wgmma_f16_128x64x64");
  EXPECT_EQ(name("linear gpu 128x160x64b2 8192x320x320 f16"), "gemm_tma_f16_128x160x64");
  EXPECT_EQ(name("conv2d gpu 128x160x64ht1/1 2x64x64x64->320"), "conv_halo_ping_pong_f16_128x160x64");
  EXPECT_EQ(name("linear_geglu gpu 128x128x32 512x5120x640 f16"), "geglu_f16_128x128x32");
  EXPECT_EQ(name("linear_geglu gpu 128x128x32/2 512x5120x640 f16"), "geglu_f16_128x128x32");
  EXPECT_EQ(name("linear_geglu gpu 128x128x32/3r 512x5120x640 f16"), "geglu_f16_128x128x32");
  EXPECT_EQ(name("conv2d gpu 64x64x32/1 2x64x64x4->320"), "conv_f16_64x64x32");
  EXPECT_EQ(name("conv2d gpu phases 64x64x32/1 2x64x64x4->320"), "conv_f16_64x64x32");
  EXPECT_EQ(name("conv2d gpu winograd 2x64x64x320->320 3x3"), "conv_winograd_f16");
  EXPECT_DOUBLE_EQ(multiplied_share("conv_winograd_f16"), 4.0 / 9);
  EXPECT_EQ(multiplied_share("conv_f16_128x160x32"), 1);
  EXPECT_EQ(name("attention gpu flash_f16_d40_q16_k32_w4_s2 2x8"), "flash_f16_d40_q16_k32_w4_s2");
  for (const char* none :
       {"", "linear", "linear gpu", "linear gpu gemv 2x1280", "linear gpu reduce of 4: 2x3",
        "conv2d gpu pad 2x3 f16", "attention gpu merge 2x8", "attention gpu_wave 2x8",
        "group_norm gpu 128x2 f16", "linear gpu 128x63x32 8192x320x320 f16", "linear onednn 128x64x32 f16"})
    EXPECT_EQ(name(none), "") << none;
}

// Everything that a plan launches for matrix products is a kernel that was counted.
TEST(KernelCounts, ThePlansOfSd15AreCounted) {
  int seen = 0;
  for (const char* product :
       {"RX 7900 XTX", "Radeon 8060S", "RX 9060 XT", "RX 9070 XT", "MI250X GCD", "MI300X"}) {
    const GpuProduct& gpu = *find_gpu_product(product);
    // A plan needs the archive of any target of the family: all of them have the same kernels.
    const auto built = [&](const GpuTarget& target) {
      return target.family == gpu_family(gpu.arch) && find_kernel_archive(target.arch);
    };
    if (std::ranges::none_of(kGpuTargets, built)) continue;
    ++seen;
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const ModelBound bound = predict(gpu, known_model("sd15"), {}, 20, dtype);
      EXPECT_EQ(bound.counted, gpu.arch);
      for (const OpBound& op : bound.stages[2].ops) {
        EXPECT_GE(op.issue_ms, op.compute_ms) << op.op;
        EXPECT_LE(op.bound_ms, (op.issue_ms + op.memory_ms) * (1 + 1e-9)) << op.op;
        if (op.op == "attention" || op.op == "conv2d" || op.op.starts_with("linear"))
          EXPECT_GT(op.counted_flops, 0.95 * op.flops) << product << ": " << op.op;
        else
          EXPECT_EQ(op.counted_flops, 0) << op.op;
      }
    }
  }
  if (!seen) GTEST_SKIP() << "this build has no kernel archive of those targets (ROCM_SD_ARCHS)";
}

TEST(KernelCounts, DamagedFilesAreErrors) {
  const auto path =
      std::filesystem::temp_directory_path() / concat("rocm_sd_counts_", std::random_device{}(), ".json");
  const auto read = [&](const char* text) {
    std::ofstream(path) << text;
    return read_kernel_counts(path);
  };
  EXPECT_EQ(read(R"({"target": "gfx1", "kernels": {"k": {"matrix_share": 0.5, "limit": "lds"}}})")
                .kernels.at("k")
                .limit,
            "lds");
  for (const char* bad :
       {"", "[]", "{}", R"({"target": 1, "kernels": {}})", R"({"target": "gfx1", "kernels": []})",
        R"({"target": "gfx1", "kernels": {"k": 1}})",
        R"({"target": "gfx1", "kernels": {"k": {"limit": "lds"}}})",
        R"({"target": "gfx1", "kernels": {"k": {"matrix_share": "1", "limit": "lds"}}})",
        R"({"target": "gfx1", "kernels": {"k": {"matrix_share": 0, "limit": "lds"}}})",
        R"({"target": "gfx1", "kernels": {"k": {"matrix_share": 1.1, "limit": "lds"}}})",
        R"({"target": "gfx1", "kernels": {"k": {"matrix_share": 0.5}}})"})
    EXPECT_THROW(read(bad), FormatError) << bad;
  std::filesystem::remove(path);
  EXPECT_THROW(read_kernel_counts(path), FileError);
}

}  // namespace
}  // namespace rocm_sd
