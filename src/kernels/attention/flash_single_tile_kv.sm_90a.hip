// Flash attention over few keys, for Hopper: kFlashSingleTileKv of composable_kernels/families/hopper.hpp.
#include "composable_kernels/families/target.hpp"
#include "composable_kernels/hopper/flash_single_tile_kv.hpp"

namespace rocm_sd {

template <class Storage, FlashSingleTileKvConfig kConfig>
struct FlashSingleTileKvCfg {
  using T = Storage;
  static constexpr int kDim = kConfig.head_dim, kKeys = kConfig.keys, kWarpgroups = kConfig.warpgroups;
};

template <class Cfg>
ROCM_SD_DEVICE void flash_single_tile_kv_kernel(const FlashSingleTileKvParams<typename Cfg::T>& p) {
  using Body = FlashSingleTileKv<Cfg>;
  Body(p, GpuArch::lds<Body::kLdsBytes>(), static_cast<int>(GpuArch::group_x())).run();
}

}  // namespace rocm_sd

// The body waits for the kernel ahead by itself.
#define ENTRY(name, T, row)                                                                         \
  ROCM_SD_CHECK_NAME(name, row, rocm_sd::kElementName<rocm_sd::T>)                                  \
  ROCM_SD_BOUNDED_KERNEL(name, __launch_bounds__((row).warpgroups * 128, (row).occupancy), (void)0, \
                         rocm_sd::FlashSingleTileKvParams<rocm_sd::T>) {                            \
    rocm_sd::flash_single_tile_kv_kernel<rocm_sd::FlashSingleTileKvCfg<rocm_sd::T, row>>(p);        \
  }
#define ROCM_SD_ENTRY(name, row) ENTRY(name, Half, rocm_sd::KernelFamily::kFlashSingleTileKv[row])
#include <entries/flash_single_tile_kv_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) ENTRY(name, Bf16, rocm_sd::KernelFamily::kFlashSingleTileKv[row])
#include <entries/flash_single_tile_kv_bf16.inc>
#undef ROCM_SD_ENTRY
