// Flash attention over few keys, for Hopper: the configurations of ROCM_SD_FLASH_SINGLE_TILE_KV.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/hopper/flash_single_tile_kv.hpp"
#include "kernels/attention/flash_configs.hpp"

namespace rocm_sd {

template <class Storage, int kHeadDim, int kMaxKeys, int kWarpgroups, int kHeld>
struct FlashSingleTileKvCfg {
  using T = Storage;
  static constexpr int kDim = kHeadDim, kKeys = kMaxKeys, kGroups = kWarpgroups;
  static constexpr int kLdsOfLauncher =
      flash_single_tile_kv_lds_bytes({kHeadDim, kMaxKeys, kWarpgroups, kHeld});
};

template <class Cfg>
ROCM_SD_DEVICE void flash_single_tile_kv_kernel(const FlashSingleTileKvParams<typename Cfg::T>& p) {
  using Body = FlashSingleTileKv<Cfg>;
  static_assert(Body::kLdsBytes == Cfg::kLdsOfLauncher);
  Body(p, GpuArch::lds<Body::kLdsBytes>(), static_cast<int>(GpuArch::group_x())).run();
}

}  // namespace rocm_sd

// The body waits for the kernel ahead by itself.
#define ENTRY(type, T, dim, keys, warpgroups, groups)                                               \
  ROCM_SD_BOUNDED_KERNEL(flash_single_tile_kv_##type##_d##dim##_k##keys##_g##warpgroups##x##groups, \
                         __launch_bounds__((warpgroups) * 128, groups), (void)0,                    \
                         rocm_sd::FlashSingleTileKvParams<rocm_sd::T>) {                            \
    rocm_sd::flash_single_tile_kv_kernel<                                                           \
        rocm_sd::FlashSingleTileKvCfg<rocm_sd::T, dim, keys, warpgroups, groups>>(p);               \
  }
#define F16(...) ENTRY(f16, Half, __VA_ARGS__)
#define BF16(...) ENTRY(bf16, Bf16, __VA_ARGS__)
ROCM_SD_FLASH_SINGLE_TILE_KV(F16)
ROCM_SD_FLASH_SINGLE_TILE_KV(BF16)
