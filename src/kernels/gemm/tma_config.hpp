// The form of TMA's product that a row of hopper.hpp names. Only .hip files for Hopper include it.
#pragma once

#include <type_traits>

#include "composable_kernels/families/gemm_config.hpp"
#include "composable_kernels/hopper/tma_pipeline.hpp"

namespace rocm_sd {

template <class Storage, GemmConfig kConfig>
struct TmaCfgChoice {
  static_assert(uses_tma(kConfig.algorithm));
  static_assert(kConfig.occupancy == 1);
  static constexpr int kColumns = kConfig.shape.block_n, kStages = kConfig.shape.stages;
  using Base = std::conditional_t<is_ping_pong(kConfig.algorithm), TmaPingPongCfg<Storage, kColumns, kStages>,
                                  TmaCfg<Storage, kColumns, kStages>>;
};

template <class Storage, GemmConfig kConfig>
using TmaCfgOf = std::conditional_t<uses_halo(kConfig.algorithm),
                                    TmaHaloCfg<typename TmaCfgChoice<Storage, kConfig>::Base>,
                                    typename TmaCfgChoice<Storage, kConfig>::Base>;

}  // namespace rocm_sd
