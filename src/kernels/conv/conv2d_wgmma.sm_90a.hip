// conv2d by warpgroup MMA, for Hopper: rows of kConv of composable_kernels/families/hopper.hpp.
// Problem, mapping, traffic, numerics, limits: composable_kernels/fused/convolution.hpp,
// hopper/wgmma_product.hpp.
#include "composable_kernels/families/target.hpp"
#include "composable_kernels/fused/convolution.hpp"
#include "composable_kernels/hopper/wgmma_product.hpp"

using namespace rocm_sd;

#define ENTRY(name, Storage, row)                                                                    \
  ROCM_SD_CHECK_NAME(name, row, "conv_", kElementName<Storage>)                                      \
  ROCM_SD_KERNEL(name, (row).shape.waves() * GpuArch::lanes, (row).occupancy, ConvParams<Storage>) { \
    using Cfg = WgmmaCfg<Storage, (row).shape>;                                                      \
    conv_body<GpuArch, Cfg, WgmmaProduct<Cfg>>(                                                      \
        p, static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::group_y()),               \
        static_cast<int>(GpuArch::group_z()), GpuArch::lds<Cfg::kLdsBytes>());                       \
  }
#define ROCM_SD_ENTRY(name, row) ENTRY(name, Half, KernelFamily::kConv[row])
#include <entries/conv_wgmma_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) ENTRY(name, Bf16, KernelFamily::kConv[row])
#include <entries/conv_wgmma_bf16.inc>
#undef ROCM_SD_ENTRY
