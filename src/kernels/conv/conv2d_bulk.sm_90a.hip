// conv2d with tiles fetched by Hopper's copy engine: the configurations of ROCM_SD_CONV_CONFIGS_BULK.
// Problem, mapping, traffic, numerics, limits: composable_kernels/fused/convolution_bulk.hpp.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/convolution_bulk.hpp"
#include "kernels/conv/conv2d_configs.hpp"

using namespace rocm_sd;

#define ROCM_SD_CONV_ENTRY(name, Storage, m, n, k, waves_m, waves_n, stages, groups, cluster)           \
  ROCM_SD_GROUP_KERNEL(name##_##m##x##n##x##k##_##cluster, ((waves_m) * (waves_n) + 1) * 32, groups,    \
                       BulkConvParams<Storage>) {                                                       \
    using Cfg = BulkCfg<Storage, TileShape{m, n, k, waves_m, waves_n, stages}, cluster, (groups) == 1>; \
    conv_bulk_body<Cfg>(p, static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::groups_x()), \
                        GpuArch::lds<Cfg::kLdsBytes>());                                                \
  }
#define ROCM_SD_CONV_F16(...) ROCM_SD_CONV_ENTRY(conv_bulk_f16, Half, __VA_ARGS__)
#define ROCM_SD_CONV_BF16(...) ROCM_SD_CONV_ENTRY(conv_bulk_bf16, Bf16, __VA_ARGS__)
ROCM_SD_CONV_CONFIGS_BULK(ROCM_SD_CONV_F16)
ROCM_SD_CONV_CONFIGS_BULK(ROCM_SD_CONV_BF16)
