// Flash attention with tiles fetched by TMA, for Hopper: the configurations of
// ROCM_SD_FLASH_TMA.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/hopper/flash_tma.hpp"
#include "kernels/attention/flash_configs.hpp"

namespace rocm_sd {

template <class Storage, int kHeadDim, int kTileKeys, int kWarpgroups, int kHeld, int kTiles,
          bool kPingPongTurn, bool kPrefetchesAfterMma>
struct FlashTmaCfg {
  using T = Storage;
  static constexpr int kDim = kHeadDim, kKeys = kTileKeys, kGroups = kWarpgroups, kSlots = kTiles;
  static constexpr bool kPingPong = kPingPongTurn, kPrefetchAfterMma = kPrefetchesAfterMma;
  static constexpr int kLdsOfLauncher = flash_tma_lds_bytes(
      {kHeadDim, kTileKeys, kWarpgroups, kHeld, kTiles, kPingPongTurn, kPrefetchesAfterMma});
};

template <class Cfg>
ROCM_SD_DEVICE void flash_tma_kernel(const FlashTmaParams<typename Cfg::T>& p) {
  using Body = FlashTma<Cfg>;
  static_assert(Body::kLdsBytes == Cfg::kLdsOfLauncher);
  Body(p, GpuArch::lds<Body::kLdsBytes>(),
       {static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::group_y()),
        static_cast<int>(GpuArch::group_z())})
      .run();
}

}  // namespace rocm_sd

// The body waits for the kernel ahead by itself.
#define ENTRY(type, T, dim, keys, warpgroups, groups, slots, ping_pong, prefetch_after_mma)                             \
  ROCM_SD_BOUNDED_KERNEL(                                                                                               \
      flash_tma_##type##_d##dim##_k##keys##_g##warpgroups##x##groups##_s##slots##_t##ping_pong##_l##prefetch_after_mma, \
      __launch_bounds__((warpgroups) * 128, groups), (void)0, rocm_sd::FlashTmaParams<rocm_sd::T>) {                    \
    rocm_sd::flash_tma_kernel<rocm_sd::FlashTmaCfg<rocm_sd::T, dim, keys, warpgroups, groups, slots,                    \
                                                   ping_pong, prefetch_after_mma>>(p);                                  \
  }
#define F16(...) ENTRY(f16, Half, __VA_ARGS__)
#define BF16(...) ENTRY(bf16, Bf16, __VA_ARGS__)
ROCM_SD_FLASH_TMA(F16)
ROCM_SD_FLASH_TMA(BF16)
