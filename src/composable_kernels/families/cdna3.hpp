// CDNA (gfx90a, gfx942, gfx950): its kernels.
#pragma once

#include "composable_kernels/families/family.hpp"

namespace rocm_sd {

struct Cdna3Family : AmdFamily {
  static constexpr const char* kName = "cdna3";
  // Waves that share no rows, or no channels, fetch them for themselves: LDS, which every SIMD reads from,
  // would bound these tiles. Four steps' loads are under way, but for tiles of few channels, whose rows would
  // take too many registers.
  static constexpr auto kWeights = DirectOperand::kWeights, kRows = DirectOperand::kRows;

  // Two workgroups and more to a compute unit, so that the products of one run beside the softmax of another:
  // two stages of long heads would leave room for one.
  static constexpr auto kFlash = std::to_array<FlashConfig>({
      {.head_dim = 32, .queries = 32, .keys = 64},
      {.head_dim = 32, .keys = 64},
      {.head_dim = 40, .queries = 32, .keys = 64},
      {.head_dim = 40, .keys = 64},
      {.head_dim = 64, .queries = 32, .keys = 64, .stages = 1},
      {.head_dim = 64, .keys = 64, .stages = 1},
      {.head_dim = 80, .queries = 32, .keys = 64, .stages = 1},
      {.head_dim = 80, .keys = 64, .stages = 1},
      {.head_dim = 104, .queries = 32, .stages = 1},
      {.head_dim = 104, .stages = 1},
      {.head_dim = 128, .queries = 32, .stages = 1},
      {.head_dim = 128, .stages = 1},
      {.head_dim = 160, .stages = 1},
  });
  static constexpr auto kFlashAnyMask = std::to_array<FlashConfig>({
      {.head_dim = 32, .keys = 64},
      {.head_dim = 40, .keys = 64},
      {.head_dim = 64, .keys = 64, .stages = 1},
      {.head_dim = 80, .keys = 64, .stages = 1},
      {.head_dim = 104, .stages = 1},
      {.head_dim = 128, .stages = 1},
      {.head_dim = 160, .stages = 1},
  });

  // Queries in registers, of which there are 512: LDS, which every SIMD reads from, would bound products of
  // which both operands come from there.
  static constexpr auto kFlashLargeD = std::to_array<FlashLargeDConfig>({
      {.head_dim = 512,
       .queries = 32,
       .keys = 128,
       .waves_q = 1,
       .waves_k = 8,
       .chunk_dim = 128,
       .chunk_keys = 32,
       .query_store = QueryStore::kRegisters},
  });

  static constexpr auto kGemm = std::to_array<GemmConfig>({
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 32, .waves_m = 2, .waves_n = 2, .stages = 1}},
      {.shape = {.block_m = 256, .block_n = 128, .block_k = 32, .waves_m = 4, .waves_n = 2, .stages = 1}},
      {.shape = {.block_m = 128, .block_n = 160, .block_k = 32, .waves_m = 2, .waves_n = 2, .stages = 1}},
      {.shape = {.block_m = 128, .block_n = 64, .block_k = 32, .waves_m = 4, .direct = kRows, .ahead = 4}},
      {.shape = {.block_m = 64, .block_n = 128, .block_k = 32, .waves_n = 4, .direct = kWeights, .ahead = 4}},
      {.shape = {.block_m = 64, .block_n = 64, .block_k = 64, .waves_n = 4, .direct = kWeights, .ahead = 4}},
      {.shape = {.block_m = 32, .block_n = 64, .block_k = 64, .waves_n = 2, .direct = kWeights, .ahead = 4}},
      to_lds_gemm({.block_m = 128,
                   .block_n = 64,
                   .block_k = 32,
                   .waves_m = 4,
                   .stages = 4,
                   .direct = kRows,
                   .ahead = 4}),
      to_lds_gemm(
          {.block_m = 32, .block_n = 64, .block_k = 64, .waves_n = 2, .direct = kWeights, .ahead = 2}),
  });
  static constexpr auto kGeglu = std::to_array<GemmConfig>({
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 32, .waves_m = 2, .waves_n = 2, .stages = 1}},
      {.shape = {.block_m = 256, .block_n = 128, .block_k = 32, .waves_m = 4, .waves_n = 2, .stages = 1}},
      {.shape = {.block_m = 128, .block_n = 64, .block_k = 32, .waves_m = 4, .direct = kRows, .ahead = 4}},
      {.shape = {.block_m = 64, .block_n = 128, .block_k = 32, .waves_n = 4, .direct = kWeights, .ahead = 4}},
  });
  static constexpr auto kConv = std::to_array<GemmConfig>({
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 32, .waves_m = 2, .waves_n = 2}},
      {.shape = {.block_m = 256, .block_n = 128, .block_k = 32, .waves_m = 4, .waves_n = 2}},
      {.shape = {.block_m = 128, .block_n = 160, .block_k = 32, .waves_m = 2, .waves_n = 2, .stages = 1}},
      {.shape = {.block_m = 128, .block_n = 64, .block_k = 32, .waves_m = 4, .direct = kRows, .ahead = 4}},
      {.shape = {.block_m = 64, .block_n = 128, .block_k = 32, .waves_n = 4, .direct = kWeights, .ahead = 4}},
      {.shape = {.block_m = 64, .block_n = 64, .block_k = 64, .waves_n = 4, .direct = kWeights, .ahead = 4}},
      {.shape = {.block_m = 256, .block_n = 32, .block_k = 32, .waves_m = 4, .direct = kRows}},
      {.shape = {.block_m = 256, .block_n = 16, .block_k = 32, .waves_m = 4, .direct = kRows}},
      to_lds_gemm({.block_m = 128, .block_n = 64, .block_k = 32, .waves_m = 4, .direct = kRows, .ahead = 2}),
  });

  // The first is also compiled as GEGLU.
  static constexpr auto kEightBitGemm = std::to_array<GemmConfig>({
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 1}},
      {.shape = {.block_m = 64, .block_n = 64, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 1}},
  });
  static constexpr auto kEightBitGeglu = std::to_array<GemmConfig>({
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 64, .waves_m = 2, .waves_n = 2, .stages = 1}},
  });
};

}  // namespace rocm_sd
