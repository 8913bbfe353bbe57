// Flash attention by warpgroup products, for Hopper: the configurations of ROCM_SD_FLASH_HOPPER.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/flash_group.hpp"
#include "kernels/attention/flash_configs.hpp"

namespace rocm_sd {

template <class Storage, int kHeadDim, int kWaveGroups, int kHeld>
struct FlashGroupCfg {
  using T = Storage;
  static constexpr int kDim = kHeadDim, kGroups = kWaveGroups;
  static constexpr int kLdsOfLauncher = flash_group_lds_bytes({kHeadDim, kWaveGroups, kHeld});
};

template <class Cfg>
ROCM_SD_DEVICE void flash_group_kernel(const FlashParams<typename Cfg::T>& p) {
  using Body = FlashGroupProduct<Cfg>;
  static_assert(Body::kLdsBytes == Cfg::kLdsOfLauncher);
  Body(p, GpuArch::lds<Body::kLdsBytes>(),
       {static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::group_y()),
        static_cast<int>(GpuArch::group_z())})
      .run();
}

}  // namespace rocm_sd

#define ENTRY(type, T, dim, wave_groups, groups)                                                       \
  ROCM_SD_KERNEL(flash_group_##type##_d##dim##_g##wave_groups##x##groups, (wave_groups) * 128, groups, \
                 rocm_sd::FlashParams<rocm_sd::T>) {                                                   \
    rocm_sd::flash_group_kernel<rocm_sd::FlashGroupCfg<rocm_sd::T, dim, wave_groups, groups>>(p);      \
  }
#define F16(...) ENTRY(f16, Half, __VA_ARGS__)
#define BF16(...) ENTRY(bf16, Bf16, __VA_ARGS__)
ROCM_SD_FLASH_HOPPER(F16)
ROCM_SD_FLASH_HOPPER(BF16)
