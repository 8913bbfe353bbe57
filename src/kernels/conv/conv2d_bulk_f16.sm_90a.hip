// conv2d in f16 with tiles fetched by Hopper's copy engine: the configurations of ROCM_SD_CONV_CONFIGS_BULK.
// Problem, mapping, traffic, numerics, limits: composable_kernels/fused/convolution_bulk.hpp.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/convolution_bulk.hpp"
#include "kernels/conv/conv2d_configs.hpp"

using namespace rocm_sd;

#define ROCM_SD_CONV(name, n, stages, groups)                                                           \
  ROCM_SD_BULK_KERNEL(conv_##name##_f16_128x##n##x64, groups, BulkConvParams<Half>) {                   \
    using Cfg = BulkCfg<Half, n, stages, groups>;                                                       \
    conv_bulk_body<Cfg>(p, static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::groups_x()), \
                        GpuArch::lds<Cfg::kLdsBytes>());                                                \
  }
ROCM_SD_CONV_CONFIGS_BULK(ROCM_SD_CONV)
