// conv2d by warpgroup products, for Hopper: the configurations of ROCM_SD_CONV_CONFIGS_HOPPER.
// Problem, mapping, traffic, numerics, limits: composable_kernels/fused/convolution.hpp,
// hopper/wgmma_product.hpp.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/convolution.hpp"
#include "composable_kernels/hopper/wgmma_product.hpp"
#include "kernels/conv/conv2d_configs.hpp"

using namespace rocm_sd;

#define ROCM_SD_CONV_ENTRY(name, Storage, m, n, k, waves_m, waves_n, stages, groups)     \
  ROCM_SD_KERNEL(name##_##m##x##n##x##k, (waves_m) * (waves_n) * GpuArch::lanes, groups, \
                 ConvParams<Storage>) {                                                  \
    using Cfg = WgmmaCfg<Storage, TileShape{m, n, k, waves_m, waves_n, stages}>;         \
    conv_body<GpuArch, Cfg, WgmmaProduct<Cfg>>(                                          \
        p, static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::group_y()),   \
        static_cast<int>(GpuArch::group_z()), GpuArch::lds<Cfg::kLdsBytes>());           \
  }
#define ROCM_SD_CONV_F16(...) ROCM_SD_CONV_ENTRY(conv_wgmma_f16, Half, __VA_ARGS__)
#define ROCM_SD_CONV_BF16(...) ROCM_SD_CONV_ENTRY(conv_wgmma_bf16, Bf16, __VA_ARGS__)
ROCM_SD_CONV_CONFIGS_HOPPER(ROCM_SD_CONV_F16)
ROCM_SD_CONV_CONFIGS_HOPPER(ROCM_SD_CONV_BF16)
