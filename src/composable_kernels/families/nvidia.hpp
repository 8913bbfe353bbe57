// NVIDIA from sm_80 on: the kernels of warps. Hopper has these and its own (hopper.hpp).
#pragma once

#include "composable_kernels/families/family.hpp"

namespace rocm_sd {

struct NvidiaFamily : KernelFamilyDefaults {
  static constexpr const char* kName = "nvidia";
  static constexpr LdsKind kLds = LdsKind::kDynamic;
  static constexpr ValueLayout kValues = ValueLayout::kRows;
  static constexpr PixelLimit kPixelLimit = PixelLimit::kCount;

  static constexpr auto kFlash = std::to_array<FlashConfig>({
      {.head_dim = 32, .queries = 32, .stages = 3, .occupancy = 4},
      {.head_dim = 32, .queries = 32, .keys = 64, .occupancy = 3},
      {.head_dim = 32, .keys = 64, .occupancy = 4},
      {.head_dim = 40, .queries = 32, .stages = 3, .occupancy = 4},
      {.head_dim = 40, .queries = 64, .stages = 3, .occupancy = 2},
      {.head_dim = 40, .queries = 32, .keys = 64, .occupancy = 3},
      {.head_dim = 40, .keys = 64, .occupancy = 4},
      {.head_dim = 64, .queries = 32, .stages = 3, .occupancy = 3},
      {.head_dim = 64, .queries = 32, .keys = 64, .occupancy = 3},
      {.head_dim = 64, .keys = 64, .occupancy = 4},
      {.head_dim = 80, .queries = 32, .keys = 64, .occupancy = 2},
      {.head_dim = 80, .queries = 32, .stages = 3, .occupancy = 2},
      {.head_dim = 80, .keys = 64, .occupancy = 3},
      {.head_dim = 104, .keys = 64, .occupancy = 3},
      {.head_dim = 128, .queries = 32, .occupancy = 2},
      {.head_dim = 128, .keys = 64, .occupancy = 3},
      {.head_dim = 160, .keys = 64, .occupancy = 2},
      {.head_dim = 160, .occupancy = 2},
  });
  static constexpr auto kFlashAnyMask = std::to_array<FlashConfig>({
      {.head_dim = 32, .occupancy = 3},
      {.head_dim = 40, .occupancy = 4},
      {.head_dim = 64, .occupancy = 3},
      {.head_dim = 80, .occupancy = 2},
      {.head_dim = 104, .occupancy = 2},
      {.head_dim = 128, .occupancy = 2},
      {.head_dim = 160, .occupancy = 2},
  });
  static constexpr auto kFlashLargeD = std::to_array<FlashLargeDConfig>({
      {.head_dim = 512,
       .queries = 64,
       .keys = 64,
       .waves_q = 4,
       .waves_k = 2,
       .chunk_dim = 128,
       .chunk_keys = 16,
       .stages = 4},
      {.head_dim = 512,
       .queries = 64,
       .keys = 128,
       .waves_q = 2,
       .waves_k = 4,
       .chunk_dim = 64,
       .chunk_keys = 16,
       .stages = 4},
      {.head_dim = 512,
       .queries = 64,
       .keys = 64,
       .waves_q = 2,
       .waves_k = 4,
       .chunk_dim = 128,
       .chunk_keys = 16,
       .stages = 4},
      {.head_dim = 512,
       .queries = 32,
       .keys = 64,
       .waves_q = 2,
       .waves_k = 4,
       .chunk_dim = 128,
       .chunk_keys = 16,
       .stages = 2},
  });

  // 160 channels: SD's widths 320, 640, 1280 ... are multiples of it, and 2048x1280 makes 128 tiles of them.
  static constexpr auto kGemm = std::to_array<GemmConfig>({
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 32, .waves_m = 2, .waves_n = 2, .stages = 4},
       .occupancy = 2},
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 3},
       .occupancy = 2},
      {.shape = {.block_m = 256, .block_n = 128, .block_k = 32, .waves_m = 4, .waves_n = 2, .stages = 4}},
      {.shape = {.block_m = 256, .block_n = 128, .block_k = 64, .waves_m = 4, .waves_n = 2, .stages = 3}},
      {.shape = {.block_m = 128, .block_n = 256, .block_k = 64, .waves_m = 2, .waves_n = 4, .stages = 3}},
      {.shape = {.block_m = 128, .block_n = 160, .block_k = 32, .waves_m = 2, .waves_n = 2, .stages = 4},
       .occupancy = 2},
      {.shape = {.block_m = 128, .block_n = 160, .block_k = 64, .waves_m = 4, .waves_n = 2, .stages = 3}},
      {.shape = {.block_m = 128, .block_n = 64, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 3},
       .occupancy = 2},
      {.shape = {.block_m = 64, .block_n = 128, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 3},
       .occupancy = 2},
      {.shape = {.block_m = 64, .block_n = 160, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 3},
       .occupancy = 2},
      {.shape = {.block_m = 64, .block_n = 64, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 4},
       .occupancy = 3},
      {.shape = {.block_m = 32, .block_n = 64, .block_k = 64, .waves_n = 2, .stages = 4}, .occupancy = 4},
  });
  static constexpr auto kGeglu = std::to_array<GemmConfig>({
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 32, .waves_m = 2, .waves_n = 2, .stages = 4},
       .occupancy = 2},
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 3},
       .occupancy = 2},
      {.shape = {.block_m = 256, .block_n = 128, .block_k = 64, .waves_m = 4, .waves_n = 2, .stages = 3}},
      {.shape = {.block_m = 128, .block_n = 256, .block_k = 64, .waves_m = 2, .waves_n = 4, .stages = 3}},
      {.shape = {.block_m = 64, .block_n = 64, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 4},
       .occupancy = 3},
  });
  // Few channels would leave most of a warpgroup's MMA idle: all of these that Hopper compiles.
  static constexpr auto kConvFewChannels = std::to_array<GemmConfig>({
      {.shape = {.block_m = 256, .block_n = 32, .block_k = 32, .waves_m = 4, .stages = 4}, .occupancy = 2},
      {.shape = {.block_m = 256, .block_n = 16, .block_k = 32, .waves_m = 4, .stages = 4}, .occupancy = 2},
  });
  static constexpr auto kConv = joined(
      std::to_array<GemmConfig>({
          {.shape = {.block_m = 128, .block_n = 128, .block_k = 32, .waves_m = 2, .waves_n = 2, .stages = 4},
           .occupancy = 2},
          {.shape = {.block_m = 128, .block_n = 128, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 3},
           .occupancy = 2},
          {.shape = {.block_m = 256, .block_n = 128, .block_k = 32, .waves_m = 4, .waves_n = 2, .stages = 4}},
          {.shape = {.block_m = 256, .block_n = 128, .block_k = 64, .waves_m = 4, .waves_n = 2, .stages = 3}},
          {.shape = {.block_m = 128, .block_n = 256, .block_k = 64, .waves_m = 2, .waves_n = 4, .stages = 3}},
          {.shape = {.block_m = 128, .block_n = 160, .block_k = 32, .waves_m = 2, .waves_n = 2, .stages = 4},
           .occupancy = 2},
          {.shape = {.block_m = 128, .block_n = 160, .block_k = 64, .waves_m = 2, .waves_n = 2},
           .occupancy = 2},
          {.shape = {.block_m = 256, .block_n = 160, .block_k = 32, .waves_m = 4, .waves_n = 2, .stages = 4}},
          {.shape = {.block_m = 128, .block_n = 64, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 3},
           .occupancy = 2},
          {.shape = {.block_m = 64, .block_n = 128, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 3},
           .occupancy = 2},
          {.shape = {.block_m = 64, .block_n = 160, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 3},
           .occupancy = 2},
          {.shape = {.block_m = 64, .block_n = 64, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 4},
           .occupancy = 3},
      }),
      kConvFewChannels);

  // The first is also compiled as GEGLU.
  static constexpr auto kEightBitGemm = std::to_array<GemmConfig>({
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 64, .waves_m = 4, .waves_n = 2, .stages = 4}},
      {.shape = {.block_m = 64, .block_n = 64, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 4},
       .occupancy = 3},
  });
  static constexpr auto kEightBitGeglu = std::to_array<GemmConfig>({
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 64, .waves_m = 4, .waves_n = 2, .stages = 4}},
  });
};

}  // namespace rocm_sd
