// The kernels of a group norm over bands.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/group_bands.hpp"

#include "kernels/norm/group_bands_configs.hpp"

namespace rocm_sd {
namespace {

using group_bands_configs::kThreads;

ROCM_SD_DEVICE int64_t wave_of_grid() {
  return static_cast<int64_t>(GpuArch::group_x()) * (kThreads / GpuArch::lanes) +
         GpuArch::uniform(GpuArch::thread() / GpuArch::lanes);
}

}  // namespace

#define FOR_TYPE(type, T)                                                                         \
  ROCM_SD_KERNEL(group_moments_##type, kThreads, 4, GroupMomentsParams<T>) {                      \
    const int64_t item = wave_of_grid();                                                          \
    if (item < static_cast<int64_t>(p.rows) * p.groups) group_moments_body<GpuArch>(p, item);     \
  }                                                                                               \
  ROCM_SD_KERNEL(normalise_channels_##type, kThreads, 4, NormaliseParams<T>) {                    \
    const int64_t pack = static_cast<int64_t>(GpuArch::group_x()) * kThreads + GpuArch::thread(); \
    if (pack < p.packs) normalise_pack_body<GpuArch>(p, pack);                                    \
  }
FOR_TYPE(f16, Half)
FOR_TYPE(bf16, Bf16)

ROCM_SD_KERNEL(group_scale, kThreads, 1, GroupScaleParams) {
  const auto group = static_cast<int>(wave_of_grid());
  if (group < p.groups) group_scale_body<GpuArch>(p, group);
}

}  // namespace rocm_sd
