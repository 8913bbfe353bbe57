// Flash attention by warpgroup MMA, for Hopper: kFlashWgmma of composable_kernels/families/hopper.hpp.
#include "composable_kernels/families/target.hpp"
#include "composable_kernels/hopper/flash_wgmma.hpp"

namespace rocm_sd {

template <class Storage, FlashWgmmaConfig kConfig>
struct FlashWgmmaCfg {
  using T = Storage;
  static constexpr int kDim = kConfig.head_dim, kWarpgroups = kConfig.warpgroups;
};

template <class Cfg>
ROCM_SD_DEVICE void flash_wgmma_kernel(const FlashParams<typename Cfg::T>& p) {
  using Body = FlashWgmmaProduct<Cfg>;
  Body(p, GpuArch::lds<Body::kLdsBytes>(),
       {static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::group_y()),
        static_cast<int>(GpuArch::group_z())})
      .run();
}

}  // namespace rocm_sd

#define ENTRY(name, T, row)                                                                         \
  ROCM_SD_CHECK_NAME(name, row, rocm_sd::kElementName<rocm_sd::T>)                                  \
  ROCM_SD_KERNEL(name, (row).warpgroups * 128, (row).occupancy, rocm_sd::FlashParams<rocm_sd::T>) { \
    rocm_sd::flash_wgmma_kernel<rocm_sd::FlashWgmmaCfg<rocm_sd::T, row>>(p);                        \
  }
#define ROCM_SD_ENTRY(name, row) ENTRY(name, Half, rocm_sd::KernelFamily::kFlashWgmma[row])
#include <entries/flash_wgmma_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) ENTRY(name, Bf16, rocm_sd::KernelFamily::kFlashWgmma[row])
#include <entries/flash_wgmma_bf16.inc>
#undef ROCM_SD_ENTRY
