// What RDNA 3 and RDNA 4 have in common: the tables of their kernels, but for long heads.
#pragma once

#include "composable_kernels/families/family.hpp"

namespace rocm_sd {

struct RdnaFamily : AmdFamily {
  static constexpr auto kFlashShortHeads = std::to_array<FlashConfig>({
      {.head_dim = 32, .keys = 64, .waves = 8},
      {.head_dim = 32},
      {.head_dim = 40, .keys = 64, .waves = 8},
      {.head_dim = 40, .queries = 32, .waves = 8},
      {.head_dim = 40},
      {.head_dim = 64, .keys = 64, .waves = 8},
      {.head_dim = 64, .queries = 32, .waves = 8},
      {.head_dim = 64},
      {.head_dim = 80, .keys = 64, .waves = 8},
      {.head_dim = 80},
      {.head_dim = 104, .waves = 8},
      {.head_dim = 128, .waves = 8},
  });
  static constexpr auto kFlashAnyMaskShortHeads = std::to_array<FlashConfig>({
      {.head_dim = 32},
      {.head_dim = 40},
      {.head_dim = 64},
      {.head_dim = 80},
  });

  static constexpr auto kGemm = std::to_array<GemmConfig>({
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 32, .waves_m = 2, .waves_n = 2}},
      {.shape = {.block_m = 128, .block_n = 160, .block_k = 32, .waves_m = 4, .waves_n = 2}},
      {.shape = {.block_m = 128, .block_n = 64, .block_k = 32, .waves_m = 2, .waves_n = 2}},
      {.shape = {.block_m = 64, .block_n = 128, .block_k = 32, .waves_m = 2, .waves_n = 2}},
      {.shape = {.block_m = 64, .block_n = 64, .block_k = 32, .waves_m = 2, .waves_n = 2}},
      {.shape = {.block_m = 32, .block_n = 64, .block_k = 64, .waves_n = 2}},
  });
  static constexpr auto kGeglu = std::to_array<GemmConfig>({
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 32, .waves_m = 2, .waves_n = 2}},
      {.shape = {.block_m = 64, .block_n = 64, .block_k = 32, .waves_m = 2, .waves_n = 2}},
  });
  static constexpr auto kConv = std::to_array<GemmConfig>({
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 32, .waves_m = 2, .waves_n = 2}},
      {.shape = {.block_m = 128, .block_n = 160, .block_k = 32, .waves_m = 4, .waves_n = 2}},
      {.shape = {.block_m = 128, .block_n = 64, .block_k = 32, .waves_m = 2, .waves_n = 2}},
      {.shape = {.block_m = 64, .block_n = 128, .block_k = 32, .waves_m = 2, .waves_n = 2}},
      {.shape = {.block_m = 64, .block_n = 64, .block_k = 32, .waves_m = 2, .waves_n = 2}},
      {.shape = {.block_m = 256, .block_n = 32, .block_k = 32, .waves_m = 4}},
      {.shape = {.block_m = 256, .block_n = 16, .block_k = 32, .waves_m = 4}},
  });
};

}  // namespace rocm_sd
