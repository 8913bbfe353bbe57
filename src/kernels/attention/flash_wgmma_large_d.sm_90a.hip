// Flash attention for head_dim 512 by warpgroup MMA, for Hopper: kFlashWgmmaLargeD of
// composable_kernels/families/hopper.hpp.
#include "composable_kernels/families/target.hpp"
#include "composable_kernels/hopper/flash_wgmma_large_d.hpp"

namespace rocm_sd {

template <class T, FlashWgmmaLargeDConfig kConfig>
ROCM_SD_DEVICE void flash_wgmma_large_d_kernel(const FlashParams<T>& p) {
  using Body = FlashWgmmaLargeD<T>;
  static_assert(Body::kQueries == kConfig.queries && Body::kKeys == kConfig.keys);
  Body(p, GpuArch::lds<Body::kLdsBytes>(),
       {static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::group_y()),
        static_cast<int>(GpuArch::group_z())})
      .run();
}

}  // namespace rocm_sd

#define ENTRY(name, T, row)                                                           \
  ROCM_SD_CHECK_NAME(name, row, rocm_sd::kElementName<rocm_sd::T>)                    \
  ROCM_SD_KERNEL(name, (row).warpgroups * 128, 1, rocm_sd::FlashParams<rocm_sd::T>) { \
    rocm_sd::flash_wgmma_large_d_kernel<rocm_sd::T, row>(p);                          \
  }
#define ROCM_SD_ENTRY(name, row) ENTRY(name, Half, rocm_sd::KernelFamily::kFlashWgmmaLargeD[row])
#include <entries/flash_wgmma_large_d_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) ENTRY(name, Bf16, rocm_sd::KernelFamily::kFlashWgmmaLargeD[row])
#include <entries/flash_wgmma_large_d_bf16.inc>
#undef ROCM_SD_ENTRY
