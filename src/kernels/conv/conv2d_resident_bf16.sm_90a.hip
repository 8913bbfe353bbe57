// conv2d in bf16 with the filter kept in LDS: rows of kConv of composable_kernels/families/hopper.hpp.
// Problem, mapping, traffic, numerics, limits: composable_kernels/hopper/convolution_resident.hpp.
#include "composable_kernels/families/target.hpp"
#include "composable_kernels/hopper/convolution_resident.hpp"

using namespace rocm_sd;

#define ENTRY(name, row)                                                                                    \
  ROCM_SD_CHECK_NAME(name, row, "conv_", "bf16")                                                            \
  ROCM_SD_RESIDENT_KERNEL(name, TmaConvParams<Bf16>) {                                                      \
    using Cfg = TmaResidentCfg<Bf16, (row).shape>;                                                          \
    conv_resident_body<Cfg>(p, static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::groups_x()), \
                            GpuArch::lds<Cfg::kLdsBytes>());                                                \
  }
#define ROCM_SD_ENTRY(name, row) ENTRY(name, KernelFamily::kConv[row])
#include <entries/conv_resident_bf16.inc>
#undef ROCM_SD_ENTRY
