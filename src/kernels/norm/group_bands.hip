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

template <class Storage, int kWidth>
struct Cfg {
  using T = Storage;
  static constexpr int kVec = kWidth, kThreads = group_bands_configs::kThreads;
};
constexpr int kWaves = kThreads / GpuArch::lanes;

}  // namespace

#define FOR_PACK(type, T, vec)                                                          \
  ROCM_SD_KERNEL(group_moments_##type##_v##vec, kThreads, 2, GroupMomentsParams<T>) {   \
    __shared__ group_norms::MeasureLds<kThreads, vec> lds;                              \
    group_moments_body<GpuArch, Cfg<T, vec>>(p, Block<GpuArch>{1, kWaves}, lds);        \
  }                                                                                     \
  ROCM_SD_KERNEL(normalise_channels_##type##_v##vec, kThreads, 2, NormaliseParams<T>) { \
    normalise_channels_body<GpuArch, Cfg<T, vec>>(p, Block<GpuArch>{1, kWaves});        \
  }
FOR_PACK(f16, Half, 8)
FOR_PACK(f16, Half, 1)
FOR_PACK(bf16, Bf16, 8)
FOR_PACK(bf16, Bf16, 1)
FOR_PACK(f32, float, 4)
FOR_PACK(f32, float, 1)

ROCM_SD_KERNEL(group_scale, kThreads, 1, GroupScaleParams) {
  const auto wave = static_cast<int>(wave_of_grid());
  if (wave < p.images * p.groups) group_scale_body<GpuArch>(p, wave);
}

}  // namespace rocm_sd
