// Flash attention for head_dim 512 by warpgroup products, for Hopper.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/hopper/flash_wgmma_large_d.hpp"
#include "kernels/attention/flash_configs.hpp"

namespace rocm_sd {

template <class T>
ROCM_SD_DEVICE void flash_wgmma_large_d_kernel(const FlashParams<T>& p) {
  using Body = FlashWgmmaLargeD<T>;
  static_assert(Body::kLdsBytes == kFlashWgmmaLargeDLdsBytes);
  Body(p, GpuArch::lds<Body::kLdsBytes>(),
       {static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::group_y()),
        static_cast<int>(GpuArch::group_z())})
      .run();
}

}  // namespace rocm_sd

ROCM_SD_KERNEL(flash_wgmma_large_d_f16_d512, 256, 1, rocm_sd::FlashParams<rocm_sd::Half>) {
  rocm_sd::flash_wgmma_large_d_kernel(p);
}
ROCM_SD_KERNEL(flash_wgmma_large_d_bf16_d512, 256, 1, rocm_sd::FlashParams<rocm_sd::Bf16>) {
  rocm_sd::flash_wgmma_large_d_kernel(p);
}
