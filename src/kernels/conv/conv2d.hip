// conv2d on a GPU: every configuration of this family, the reduction of split sums, and the layouts.
// Problem, mapping, traffic, numerics, limits: composable_kernels/fused/convolution.hpp, conv_layout.hpp.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/conv_layout.hpp"
#include "composable_kernels/fused/convolution.hpp"
#include "kernels/conv/conv2d_configs.hpp"

using namespace rocm_sd;

#define ROCM_SD_CONV_ENTRY(name, Storage, m, n, k, waves_m, waves_n, stages, groups)                       \
  ROCM_SD_KERNEL(name##_##m##x##n##x##k, (waves_m) * (waves_n) * GpuArch::lanes, groups,                   \
                 ConvParams<Storage>) {                                                                    \
    using Cfg = TileCfg<GpuArch, Storage, TileShape{m, n, k, waves_m, waves_n, stages}>;                   \
    conv_body<GpuArch, Cfg>(p, static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::group_y()), \
                            static_cast<int>(GpuArch::group_z()), GpuArch::lds<Cfg::kLdsBytes>());         \
  }
#define ROCM_SD_CONV_F16(...) ROCM_SD_CONV_ENTRY(conv_f16, Half, __VA_ARGS__)
#define ROCM_SD_CONV_BF16(...) ROCM_SD_CONV_ENTRY(conv_bf16, Bf16, __VA_ARGS__)
#define ROCM_SD_CONV_F32(...) ROCM_SD_CONV_ENTRY(conv_f32, float, __VA_ARGS__)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
ROCM_SD_CONV_CONFIGS_FEW(ROCM_SD_CONV_F16)
ROCM_SD_CONV_CONFIGS_FEW(ROCM_SD_CONV_BF16)
#elif defined(__CUDACC__)
ROCM_SD_CONV_CONFIGS_NVIDIA(ROCM_SD_CONV_F16)
ROCM_SD_CONV_CONFIGS_NVIDIA(ROCM_SD_CONV_BF16)
#elif defined(__GFX9__)
ROCM_SD_CONV_CONFIGS_CDNA(ROCM_SD_CONV_F16)
ROCM_SD_CONV_CONFIGS_CDNA(ROCM_SD_CONV_BF16)
#else
ROCM_SD_CONV_CONFIGS_RDNA(ROCM_SD_CONV_F16)
ROCM_SD_CONV_CONFIGS_RDNA(ROCM_SD_CONV_BF16)
#endif
ROCM_SD_CONV_CONFIGS_F32(ROCM_SD_CONV_F32)

// One lane's place in a grid of small workgroups.
static ROCM_SD_DEVICE int64_t lane_index() {
  return static_cast<int64_t>(GpuArch::group_x()) * kConvSmallThreads + GpuArch::thread();
}

#define ROCM_SD_CONV_SMALL(suffix, Storage)                                               \
  ROCM_SD_KERNEL(conv_reduce_##suffix, kConvSmallThreads, 1, GemmReduceParams<Storage>) { \
    gemm_reduce_body<GpuArch, Storage>(p, lane_index());                                  \
  }                                                                                       \
  ROCM_SD_KERNEL(conv_pack_##suffix, kConvSmallThreads, 1, FilterParams<Storage>) {       \
    conv_pack_body(p, lane_index());                                                      \
  }                                                                                       \
  ROCM_SD_KERNEL(conv_phases_##suffix, kConvSmallThreads, 1, FilterParams<Storage>) {     \
    conv_phases_body(p, lane_index());                                                    \
  }                                                                                       \
  ROCM_SD_KERNEL(conv_unpack_##suffix, kConvSmallThreads, 1, FilterParams<Storage>) {     \
    conv_unpack_body(p, lane_index());                                                    \
  }                                                                                       \
  ROCM_SD_KERNEL(conv_pad_##suffix, kConvSmallThreads, 1, PadParams<Storage>) {           \
    conv_pad_body(p, lane_index());                                                       \
  }
ROCM_SD_CONV_SMALL(f16, Half)
ROCM_SD_CONV_SMALL(bf16, Bf16)
ROCM_SD_CONV_SMALL(f32, float)
