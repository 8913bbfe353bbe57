// conv2d of 3x3 filters on a GPU by Winograd's minimal filtering, and the filters' transform. Problem,
// mapping, traffic, numerics, limits: composable_kernels/fused/winograd.hpp.
#include "composable_kernels/arch/winograd_target.hpp"
#include "composable_kernels/fused/winograd.hpp"
#include "kernels/conv/conv2d_configs.hpp"

using namespace rocm_sd;

using WinogradTiles = WinogradCfg<winograd_shape(GpuArch::kName)>;

#if defined(ROCM_SD_TARGET_RDNA3) || defined(ROCM_SD_TARGET_RDNA4)
// Three workgroups, of two waves a SIMD each, share a work-group processor's registers.
extern "C" __global__ __attribute__((amdgpu_num_vgpr(240))) void conv_winograd_f16(const WinogradParams p);
#endif
ROCM_SD_KERNEL(conv_winograd_f16, WinogradTiles::kWaves* GpuArch::lanes, 1, WinogradParams) {
  const GroupPlace group = place_of_group<GpuArch>(p.order);
  winograd_body<GpuArch, WinogradTiles>(p, group.x, GpuArch::lds<WinogradTiles::kLdsBytes>(),
                                        [&]() -> const auto& { return GpuArch::kernel_argument(p); });
}

ROCM_SD_KERNEL(conv_winograd_filter_f16, kConvSmallThreads, 1, WinogradFilterParams) {
  winograd_filter_body(p, static_cast<int64_t>(GpuArch::group_x()) * kConvSmallThreads + GpuArch::thread());
}
