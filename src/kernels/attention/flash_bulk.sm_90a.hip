// Flash attention with tiles fetched by the copy engine, for Hopper: the configurations of
// ROCM_SD_FLASH_BULK.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/flash_bulk.hpp"
#include "kernels/attention/flash_configs.hpp"

namespace rocm_sd {

template <class Storage, int kHeadDim, int kTileKeys, int kWaveGroups, int kHeld, int kTiles, bool kInTurn,
          bool kFetchesLate>
struct FlashBulkCfg {
  using T = Storage;
  static constexpr int kDim = kHeadDim, kKeys = kTileKeys, kGroups = kWaveGroups, kSlots = kTiles;
  static constexpr bool kTurns = kInTurn, kLate = kFetchesLate;
  static constexpr int kLdsOfLauncher =
      flash_bulk_lds_bytes({kHeadDim, kTileKeys, kWaveGroups, kHeld, kTiles, kInTurn, kFetchesLate});
};

template <class Cfg>
ROCM_SD_DEVICE void flash_bulk_kernel(const FlashBulkParams<typename Cfg::T>& p) {
  using Body = FlashBulk<Cfg>;
  static_assert(Body::kLdsBytes == Cfg::kLdsOfLauncher);
  Body(p, GpuArch::lds<Body::kLdsBytes>(),
       {static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::group_y()),
        static_cast<int>(GpuArch::group_z())})
      .run();
}

}  // namespace rocm_sd

// The body waits for the kernel ahead by itself.
#define ENTRY(type, T, dim, keys, wave_groups, groups, slots, turns, late)                              \
  ROCM_SD_BOUNDED_KERNEL(                                                                               \
      flash_bulk_##type##_d##dim##_k##keys##_g##wave_groups##x##groups##_s##slots##_t##turns##_l##late, \
      __launch_bounds__((wave_groups) * 128, groups), (void)0, rocm_sd::FlashBulkParams<rocm_sd::T>) {  \
    rocm_sd::flash_bulk_kernel<                                                                         \
        rocm_sd::FlashBulkCfg<rocm_sd::T, dim, keys, wave_groups, groups, slots, turns, late>>(p);      \
  }
#define F16(...) ENTRY(f16, Half, __VA_ARGS__)
#define BF16(...) ENTRY(bf16, Bf16, __VA_ARGS__)
ROCM_SD_FLASH_BULK(F16)
ROCM_SD_FLASH_BULK(BF16)
