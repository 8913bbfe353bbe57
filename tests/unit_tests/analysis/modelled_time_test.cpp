// The model by which tables for absent GPUs choose, against sums made by hand.
#include "analysis/modelled_time.hpp"

#include <gtest/gtest.h>

namespace rocm_sd {
namespace {

// 10 compute units (CDNA: of one compute unit each), 1 GHz x 2048 FLOP a clock each: 20.48 TFLOP/s; 1000
// GB/s.
GpuProduct card() { return {"a card", "gfx942", 10, 1, 16, 1000}; }
KernelCounts half_share() {
  KernelCounts counts{"gfx942", {}};
  counts.kernels["gemm_f16_128x128x32"] = {0.5, "vector"};
  return counts;
}
PlannedProblems one(const std::string& detail, double flops, double bytes) {
  return {{detail, {"linear", 1, flops, bytes}}};
}
constexpr double kSecond = 20.48e12;  // FLOP

TEST(ModelledTime, TilesAreWhole) {
  EXPECT_EQ(tile_of_kernel("gemm_f16_128x160x32").rows, 128);
  EXPECT_EQ(tile_of_kernel("gemm_f16_128x160x32").columns, 160);
  EXPECT_EQ(tile_of_kernel("conv_bf16_64x64x32").rows, 64);
  EXPECT_EQ(tile_of_kernel("flash_f16_d64_q32_k32_w4_s3").rows, 128);
  EXPECT_EQ(tile_of_kernel("flash_f16_d64_q32_k32_w4_s3").columns, 0);
  EXPECT_EQ(tile_of_kernel("flash_large_d_f16_d512_q64_k64_w4x2_c128x16_s4").rows, 64);
  EXPECT_EQ(tile_of_kernel("gemv_f16").rows, 0);
  EXPECT_EQ(tile_of_kernel("").rows, 0);
  EXPECT_EQ(tile_of_kernel("gemm_f16_x128").rows, 0);
}

TEST(ModelledTime, ALaunchIsItsWorkInRoundsOfTiles) {
  const auto launches = one("linear gpu 128x128x32 x", kSecond, 0);
  const auto seconds = [&](const TiledOutput& output, int splits = 1,
                           const KernelCounts& counts = half_share()) {
    return modelled_seconds(card(), counts, launches, output, splits, DType::kF16) - kLaunchSeconds;
  };
  // 10 tiles on 10 compute units, at half of the peak; without counts at the peak.
  EXPECT_NEAR(seconds({1, 1280, 128}), 2 + kTileSeconds, 1e-9);
  EXPECT_NEAR(seconds({1, 1280, 128}, 1, {}), 1 + kTileSeconds, 1e-9);
  // 11 tiles take two rounds, of which 20/11 is used.
  EXPECT_NEAR(seconds({1, 1408, 128}), 2 * 20.0 / 11 + 2 * kTileSeconds, 1e-9);
  // A tile and a half of rows are two.
  EXPECT_NEAR(seconds({5, 192, 128}), 2 * 256.0 / 192 + kTileSeconds, 1e-9);
  // Two splits of 5 tiles fill the card, and their sums go to memory.
  EXPECT_NEAR(seconds({1, 640, 128}), 4 + kTileSeconds, 1e-9);
  EXPECT_NEAR(seconds({1, 640, 128}, 2), 2 + kTileSeconds, 1e-9);
}

TEST(ModelledTime, MemoryBoundsWhatHasLittleWork) {
  const auto launches = one("linear gpu 128x128x32 x", 1, 1e12);
  EXPECT_NEAR(modelled_seconds(card(), {}, launches, {1, 1280, 128}, 1, DType::kF16), 1, 1e-5);
  // Partial sums of 4 splits: 4 bytes each, four times.
  const double more = 4.0 * 1280 * 128 * 4 / 1e12;
  EXPECT_NEAR(modelled_seconds(card(), {}, launches, {1, 1280, 128}, 4, DType::kF16) -
                  modelled_seconds(card(), {}, launches, {1, 1280, 128}, 1, DType::kF16),
              more + 3 * kTileSeconds, 1e-12);
}

TEST(ModelledTime, WinogradMultipliesLess) {
  const PlannedProblems launches = {{"conv2d gpu winograd x", {"conv2d", 1, kSecond, 0}}};
  const auto seconds = [&](const TiledOutput& output) {
    return modelled_seconds(card(), {}, launches, output, 1, DType::kF16) - kLaunchSeconds;
  };
  // 10 tiles of 64 x 2x2 pixels and 64 channels on 10 compute units; 11 of them take two rounds.
  EXPECT_NEAR(seconds({1, 2560, 64}), 4.0 / 9 + kTileSeconds, 1e-9);
  EXPECT_NEAR(seconds({1, 2816, 64}), 4.0 / 9 * 20 / 11 + 2 * kTileSeconds, 1e-9);
}

TEST(ModelledTime, OtherWorkIsAtTheRateOfFloats) {
  const double f32 = peak_rate(card(), RateType::kF32);
  const PlannedProblems launches = {{"group_norm gpu whole x", {"group_norm", 3, f32, 0}}};
  EXPECT_NEAR(modelled_seconds(card(), half_share(), launches, {}, 1, DType::kF16), 1 + 3 * kLaunchSeconds,
              1e-9);
}

}  // namespace
}  // namespace rocm_sd
