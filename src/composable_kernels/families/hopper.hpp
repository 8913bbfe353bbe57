// Hopper (sm_90): NVIDIA's kernels, and those of warpgroup MMA and TMA.
#pragma once

#include "composable_kernels/families/nvidia.hpp"

namespace rocm_sd {

struct HopperFamily : NvidiaFamily {
  static constexpr const char* kName = "hopper";

  static constexpr auto kFlashWgmma = std::to_array<FlashWgmmaConfig>({
      {.head_dim = 40, .warpgroups = 2, .occupancy = 2},
      {.head_dim = 64, .warpgroups = 1, .occupancy = 3},
      {.head_dim = 80, .warpgroups = 2},
      {.head_dim = 128, .warpgroups = 2},
  });
  static constexpr auto kFlashTma = std::to_array<FlashTmaConfig>({
      {.head_dim = 40, .keys = 80, .warpgroups = 4, .stages = 12},
      {.head_dim = 40, .keys = 80, .warpgroups = 2, .occupancy = 2, .stages = 8},
      {.head_dim = 40, .keys = 80, .warpgroups = 4, .stages = 12, .prefetch = FlashPrefetch::kAfterMma},
      {.head_dim = 64, .keys = 64, .warpgroups = 1, .occupancy = 4, .stages = 6},
      {.head_dim = 64, .keys = 80, .warpgroups = 1, .occupancy = 3, .stages = 6},
      {.head_dim = 64,
       .keys = 64,
       .warpgroups = 2,
       .occupancy = 2,
       .stages = 12,
       .schedule = WarpgroupSchedule::kPingPong,
       .prefetch = FlashPrefetch::kAfterMma},
      {.head_dim = 80, .keys = 80, .warpgroups = 2, .stages = 8},
      {.head_dim = 128, .keys = 64, .warpgroups = 1, .occupancy = 2, .stages = 6},
  });
  static constexpr auto kFlashSingleTileKv = std::to_array<FlashSingleTileKvConfig>({
      {.head_dim = 40, .keys = 80, .warpgroups = 2, .occupancy = 2},
      {.head_dim = 40, .keys = 80, .warpgroups = 4},
      {.head_dim = 64, .keys = 80, .warpgroups = 5},
      {.head_dim = 64, .keys = 80, .warpgroups = 3},
      {.head_dim = 80, .keys = 80, .warpgroups = 4},
      {.head_dim = 80, .keys = 80, .warpgroups = 2},
  });
  static constexpr auto kFlashWgmmaLargeD = std::to_array<FlashWgmmaLargeDConfig>({{.head_dim = 512}});

  // TMA first, then wgmma, then what all NVIDIA has. Many stages: a product of small depth has most of its
  // loads under way from the start.
  static constexpr auto kGemm =
      joined(std::to_array<GemmConfig>({
                 tma_gemm({.columns = 256, .stages = 4}),
                 tma_gemm({.columns = 160, .stages = 6}),
                 tma_gemm({.columns = 128, .stages = 6}),
                 tma_gemm({.columns = 64, .stages = 8}),
                 tma_gemm({.columns = 128, .stages = 6}, GemmAlgorithm::kTmaPingPong),
                 tma_gemm({.columns = 160, .stages = 6}, GemmAlgorithm::kTmaPingPong),
                 wgmma_gemm({.rows = 128, .columns = 256, .stages = 4}),
                 wgmma_gemm({.rows = 256, .columns = 128, .stages = 4}),
                 wgmma_gemm({.rows = 256, .columns = 160, .stages = 4}),
                 wgmma_gemm({.rows = 128, .columns = 160, .stages = 6}),
                 wgmma_gemm({.rows = 128, .columns = 128, .stages = 3, .occupancy = 2}),
                 wgmma_gemm({.rows = 128, .columns = 64, .stages = 4, .occupancy = 2}),
                 wgmma_gemm({.rows = 64, .columns = 256, .stages = 5}),
                 wgmma_gemm({.rows = 64, .columns = 160, .stages = 3, .occupancy = 2}),
                 wgmma_gemm({.rows = 64, .columns = 128, .stages = 4, .occupancy = 2}),
                 wgmma_gemm({.rows = 64, .columns = 64, .stages = 6, .occupancy = 2}),
             }),
             NvidiaFamily::kGemm);
  static constexpr auto kGeglu =
      joined(std::to_array<GemmConfig>({
                 tma_gemm({.columns = 256, .stages = 4}),
                 tma_gemm({.columns = 128, .stages = 6}),
                 tma_gemm({.columns = 128, .stages = 6}, GemmAlgorithm::kTmaPingPong),
                 wgmma_gemm({.rows = 128, .columns = 256, .stages = 4}),
                 wgmma_gemm({.rows = 256, .columns = 128, .stages = 4}),
                 wgmma_gemm({.rows = 128, .columns = 128, .stages = 3, .occupancy = 2}),
                 wgmma_gemm({.rows = 64, .columns = 256, .stages = 5}),
                 wgmma_gemm({.rows = 64, .columns = 128, .stages = 4, .occupancy = 2}),
                 wgmma_gemm({.rows = 64, .columns = 64, .stages = 6, .occupancy = 2}),
             }),
             NvidiaFamily::kGeglu);
  // Halos of other widths lost to those or to what follows wherever they were tried.
  static constexpr auto kConv =
      joined(std::to_array<GemmConfig>({
                 tma_gemm({.columns = 160, .stages = 8}, GemmAlgorithm::kTmaHalo),
                 tma_gemm({.columns = 160, .stages = 8}, GemmAlgorithm::kTmaHaloPingPong),
                 tma_gemm({.columns = 128, .stages = 10}, GemmAlgorithm::kTmaHaloPingPong),
                 tma_gemm({.columns = 64, .stages = 12}, GemmAlgorithm::kTmaHaloPingPong),
                 resident_conv({.columns = 32, .depth = 256}),
                 resident_conv({.columns = 64, .depth = 128}),
                 tma_gemm({.columns = 256, .stages = 4}),
                 tma_gemm({.columns = 160, .stages = 6}),
                 tma_gemm({.columns = 128, .stages = 6}),
                 tma_gemm({.columns = 64, .stages = 8}),
                 tma_gemm({.columns = 160, .stages = 6}, GemmAlgorithm::kTmaPingPong),
                 tma_gemm({.columns = 128, .stages = 6}, GemmAlgorithm::kTmaPingPong),
                 tma_gemm({.columns = 64, .stages = 8}, GemmAlgorithm::kTmaPingPong),
                 wgmma_gemm({.rows = 128, .columns = 256, .stages = 4}),
                 wgmma_gemm({.rows = 128, .columns = 160, .stages = 5}),
                 wgmma_gemm({.rows = 128, .columns = 128, .stages = 6}),
                 wgmma_gemm({.rows = 256, .columns = 128, .stages = 4}),
                 wgmma_gemm({.rows = 256, .columns = 160, .stages = 4}),
                 wgmma_gemm({.rows = 128, .columns = 64, .stages = 4, .occupancy = 2}),
                 wgmma_gemm({.rows = 64, .columns = 160, .stages = 7}),
                 wgmma_gemm({.rows = 64, .columns = 128, .stages = 4, .occupancy = 2}),
                 wgmma_gemm({.rows = 64, .columns = 64, .stages = 4, .occupancy = 3}),
             }),
             kConvFewChannels);

  // Steps of 128 elements, which are 64 pairs.
  static constexpr auto kEightBitGemm = joined(std::to_array<GemmConfig>({
                                                   tma_gemm({.columns = 256, .stages = 4}),
                                                   tma_gemm({.columns = 160, .stages = 6}),
                                                   tma_gemm({.columns = 128, .stages = 6}),
                                                   tma_gemm({.columns = 64, .stages = 8}),
                                               }),
                                               NvidiaFamily::kEightBitGemm);
  static constexpr auto kEightBitGeglu = joined(std::to_array<GemmConfig>({
                                                    tma_gemm({.columns = 256, .stages = 4}),
                                                    tma_gemm({.columns = 128, .stages = 6}),
                                                }),
                                                NvidiaFamily::kEightBitGeglu);
};

}  // namespace rocm_sd
