// RDNA 3 (gfx1100, 1101, 1102, 1150, 1151): its kernels. Registers are too short for the queries of long
// heads.
#pragma once

#include "composable_kernels/families/rdna.hpp"

namespace rocm_sd {

struct Rdna3Family : RdnaFamily {
  static constexpr const char* kName = "rdna3";

  static constexpr auto kFlash =
      joined(kFlashShortHeads, std::to_array<FlashConfig>({
                                   {.head_dim = 160, .stages = 1, .query_store = QueryStore::kLds},
                               }));
  static constexpr auto kFlashAnyMask =
      joined(kFlashAnyMaskShortHeads,
             std::to_array<FlashConfig>({
                 {.head_dim = 104, .keys = 16, .query_store = QueryStore::kLds},
                 {.head_dim = 128, .keys = 16, .query_store = QueryStore::kLds},
                 {.head_dim = 160, .keys = 16, .stages = 1, .query_store = QueryStore::kLds},
             }));
};

}  // namespace rocm_sd
