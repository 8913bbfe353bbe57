// RDNA 4 (gfx1200, 1201): its kernels.
#pragma once

#include "composable_kernels/families/rdna.hpp"

namespace rocm_sd {

struct Rdna4Family : RdnaFamily {
  static constexpr const char* kName = "rdna4";

  static constexpr auto kFlash = joined(kFlashShortHeads, std::to_array<FlashConfig>({
                                                              {.head_dim = 160, .waves = 8},
                                                          }));
  static constexpr auto kFlashAnyMask = joined(kFlashAnyMaskShortHeads, std::to_array<FlashConfig>({
                                                                            {.head_dim = 104},
                                                                            {.head_dim = 128},
                                                                            {.head_dim = 160},
                                                                        }));
  // The first is also compiled as GEGLU.
  static constexpr auto kEightBitGemm = std::to_array<GemmConfig>({
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 64, .waves_m = 2, .waves_n = 2}},
      {.shape = {.block_m = 64, .block_n = 64, .block_k = 64, .waves_m = 2, .waves_n = 2}},
  });
  static constexpr auto kEightBitGeglu = std::to_array<GemmConfig>({
      {.shape = {.block_m = 128, .block_n = 128, .block_k = 64, .waves_m = 2, .waves_n = 2}},
  });
};

}  // namespace rocm_sd
