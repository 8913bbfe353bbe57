// conv2d on a GPU: the tiles of this family (kConv and kConvF32 of its file in families), the reduction of
// split sums, and the layouts. Problem, mapping, traffic, numerics, limits:
// composable_kernels/fused/convolution.hpp, conv_layout.hpp.
#include "composable_kernels/families/target.hpp"
#include "composable_kernels/fused/conv_layout.hpp"
#include "composable_kernels/fused/convolution.hpp"
#include "kernels/conv/conv2d_configs.hpp"

using namespace rocm_sd;

#define ENTRY(name, Storage, row)                                                                    \
  ROCM_SD_CHECK_NAME(name, row, "conv_", kElementName<Storage>)                                      \
  ROCM_SD_KERNEL(name, (row).shape.waves() * GpuArch::lanes, (row).occupancy, ConvParams<Storage>) { \
    constexpr bool kToLds = (row).algorithm == GemmAlgorithm::kLoadsToLds;                           \
    using Cfg = std::conditional_t<kToLds, LoadsToLdsCfg<Storage, (row).shape>,                      \
                                   TileCfg<GpuArch, Storage, (row).shape>>;                          \
    using Policy = std::conditional_t<kToLds, LoadsToLds, PipelineOf<GpuArch>>;                      \
    const GroupPlace group = place_of_group<GpuArch>(p.order);                                       \
    conv_body<GpuArch, Cfg, Policy>(p, group.x, group.y, group.z, GpuArch::lds<Cfg::kLdsBytes>(),    \
                                    [&]() -> const auto& { return GpuArch::kernel_argument(p); });   \
  }
#define ROCM_SD_ENTRY(name, row) ENTRY(name, Half, KernelFamily::kConv[row])
#include <entries/conv_tiles_f16.inc>
#include <entries/conv_to_lds_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) ENTRY(name, Bf16, KernelFamily::kConv[row])
#include <entries/conv_tiles_bf16.inc>
#include <entries/conv_to_lds_bf16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) ENTRY(name, float, KernelFamily::kConvF32[row])
#include <entries/conv_tiles_f32.inc>
#undef ROCM_SD_ENTRY

// One lane's place in a grid of small workgroups.
static ROCM_SD_DEVICE int64_t lane_index() {
  return static_cast<int64_t>(GpuArch::group_x()) * kConvSmallThreads + GpuArch::thread();
}

#define ROCM_SD_CONV_SMALL(suffix, Storage)                                               \
  ROCM_SD_KERNEL(conv_reduce_##suffix, kConvSmallThreads, 1, GemmReduceParams<Storage>) { \
    gemm_reduce_body<GpuArch, Storage, true>(p, lane_index());                            \
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
