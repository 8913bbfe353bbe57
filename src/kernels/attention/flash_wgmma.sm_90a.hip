// Flash attention by warpgroup products, for Hopper: the configurations of ROCM_SD_FLASH_HOPPER.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/hopper/flash_wgmma.hpp"
#include "kernels/attention/flash_configs.hpp"

namespace rocm_sd {

template <class Storage, int kHeadDim, int kWarpgroups, int kHeld>
struct FlashWgmmaCfg {
  using T = Storage;
  static constexpr int kDim = kHeadDim, kGroups = kWarpgroups;
  static constexpr int kLdsOfLauncher = flash_wgmma_lds_bytes({kHeadDim, kWarpgroups, kHeld});
};

template <class Cfg>
ROCM_SD_DEVICE void flash_wgmma_kernel(const FlashParams<typename Cfg::T>& p) {
  using Body = FlashWgmmaProduct<Cfg>;
  static_assert(Body::kLdsBytes == Cfg::kLdsOfLauncher);
  Body(p, GpuArch::lds<Body::kLdsBytes>(),
       {static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::group_y()),
        static_cast<int>(GpuArch::group_z())})
      .run();
}

}  // namespace rocm_sd

#define ENTRY(type, T, dim, warpgroups, groups)                                                      \
  ROCM_SD_KERNEL(flash_wgmma_##type##_d##dim##_g##warpgroups##x##groups, (warpgroups) * 128, groups, \
                 rocm_sd::FlashParams<rocm_sd::T>) {                                                 \
    rocm_sd::flash_wgmma_kernel<rocm_sd::FlashWgmmaCfg<rocm_sd::T, dim, warpgroups, groups>>(p);     \
  }
#define F16(...) ENTRY(f16, Half, __VA_ARGS__)
#define BF16(...) ENTRY(bf16, Bf16, __VA_ARGS__)
ROCM_SD_FLASH_HOPPER(F16)
ROCM_SD_FLASH_HOPPER(BF16)
