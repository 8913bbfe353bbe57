// conv2d in bf16 with tiles fetched by Hopper's copy engine: the configurations of ROCM_SD_CONV_CONFIGS_BULK.
// Problem, mapping, traffic, numerics, limits: composable_kernels/fused/convolution_bulk.hpp.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/convolution_bulk.hpp"
#include "kernels/conv/conv2d_configs.hpp"

using namespace rocm_sd;

#define ROCM_SD_CONV_OF(name, n, groups, ...)                                                           \
  ROCM_SD_BULK_KERNEL(conv_##name##_bf16_128x##n##x64, groups, BulkConvParams<Bf16>) {                  \
    using Cfg = __VA_ARGS__;                                                                            \
    conv_bulk_body<Cfg>(p, static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::groups_x()), \
                        GpuArch::lds<Cfg::kLdsBytes>());                                                \
  }
#define ROCM_SD_CONV(name, n, stages, groups) \
  ROCM_SD_CONV_OF(name, n, groups, BulkCfg<Bf16, n, stages, groups>)
#define ROCM_SD_CONV_TURN(n, stages) ROCM_SD_CONV_OF(turn, n, 1, BulkTurnsCfg<Bf16, n, stages>)
#define ROCM_SD_CONV_HALO(n, stages) ROCM_SD_CONV_OF(halo, n, 1, BulkHaloCfg<BulkCfg<Bf16, n, stages, 1>>)
#define ROCM_SD_CONV_HALO_TURN(n, stages) \
  ROCM_SD_CONV_OF(halo_turn, n, 1, BulkHaloCfg<BulkTurnsCfg<Bf16, n, stages>>)
ROCM_SD_CONV_CONFIGS_HALO(ROCM_SD_CONV_HALO)
ROCM_SD_CONV_CONFIGS_HALO_TURNS(ROCM_SD_CONV_HALO_TURN)
ROCM_SD_CONV_CONFIGS_BULK(ROCM_SD_CONV)
ROCM_SD_CONV_CONFIGS_TURNS(ROCM_SD_CONV_TURN)
