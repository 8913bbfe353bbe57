// conv2d in bf16 with tiles fetched by TMA: the configurations of ROCM_SD_CONV_CONFIGS_TMA.
// Problem, mapping, traffic, numerics, limits: composable_kernels/hopper/convolution_tma.hpp.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/hopper/convolution_tma.hpp"
#include "kernels/conv/conv2d_configs.hpp"

using namespace rocm_sd;

#define ROCM_SD_CONV_OF(name, n, groups, ...)                                                          \
  ROCM_SD_TMA_KERNEL(conv_##name##_bf16_128x##n##x64, groups, TmaConvParams<Bf16>) {                   \
    using Cfg = __VA_ARGS__;                                                                           \
    conv_tma_body<Cfg>(p, static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::groups_x()), \
                       GpuArch::lds<Cfg::kLdsBytes>());                                                \
  }
#define ROCM_SD_CONV(name, n, stages, groups) \
  ROCM_SD_CONV_OF(name, n, groups, TmaCfg<Bf16, n, stages, groups>)
#define ROCM_SD_CONV_PING_PONG(n, stages) ROCM_SD_CONV_OF(ping_pong, n, 1, TmaPingPongCfg<Bf16, n, stages>)
#define ROCM_SD_CONV_HALO(n, stages) ROCM_SD_CONV_OF(halo, n, 1, TmaHaloCfg<TmaCfg<Bf16, n, stages, 1>>)
#define ROCM_SD_CONV_HALO_PING_PONG(n, stages) \
  ROCM_SD_CONV_OF(halo_ping_pong, n, 1, TmaHaloCfg<TmaPingPongCfg<Bf16, n, stages>>)
ROCM_SD_CONV_CONFIGS_HALO(ROCM_SD_CONV_HALO)
ROCM_SD_CONV_CONFIGS_HALO_PING_PONG(ROCM_SD_CONV_HALO_PING_PONG)
ROCM_SD_CONV_CONFIGS_TMA(ROCM_SD_CONV)
ROCM_SD_CONV_CONFIGS_PING_PONG(ROCM_SD_CONV_PING_PONG)
