// Flash attention over few keys, for Hopper: the configurations of ROCM_SD_FLASH_ONCE.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/flash_once.hpp"
#include "kernels/attention/flash_configs.hpp"

namespace rocm_sd {

template <class Storage, int kHeadDim, int kMostKeys, int kWaveGroups, int kHeld>
struct FlashOnceCfg {
  using T = Storage;
  static constexpr int kDim = kHeadDim, kKeys = kMostKeys, kGroups = kWaveGroups;
  static constexpr int kLdsOfLauncher = flash_once_lds_bytes({kHeadDim, kMostKeys, kWaveGroups, kHeld});
};

template <class Cfg>
ROCM_SD_DEVICE void flash_once_kernel(const FlashOnceParams<typename Cfg::T>& p) {
  using Body = FlashOnce<Cfg>;
  static_assert(Body::kLdsBytes == Cfg::kLdsOfLauncher);
  Body(p, GpuArch::lds<Body::kLdsBytes>(), static_cast<int>(GpuArch::group_x())).run();
}

}  // namespace rocm_sd

// The body waits for the kernel ahead by itself.
#define ENTRY(type, T, dim, keys, wave_groups, groups)                                                \
  ROCM_SD_BOUNDED_KERNEL(flash_once_##type##_d##dim##_k##keys##_g##wave_groups##x##groups,            \
                         __launch_bounds__((wave_groups) * 128, groups), (void)0,                     \
                         rocm_sd::FlashOnceParams<rocm_sd::T>) {                                      \
    rocm_sd::flash_once_kernel<rocm_sd::FlashOnceCfg<rocm_sd::T, dim, keys, wave_groups, groups>>(p); \
  }
#define F16(...) ENTRY(f16, Half, __VA_ARGS__)
#define BF16(...) ENTRY(bf16, Bf16, __VA_ARGS__)
ROCM_SD_FLASH_ONCE(F16)
ROCM_SD_FLASH_ONCE(BF16)
