// Flash attention with tiles fetched by TMA, for Hopper: kFlashTma of composable_kernels/families/hopper.hpp.
#include "composable_kernels/families/target.hpp"
#include "composable_kernels/hopper/flash_tma.hpp"

namespace rocm_sd {

template <class Storage, FlashTmaConfig kConfig>
struct FlashTmaCfg {
  using T = Storage;
  static constexpr int kDim = kConfig.head_dim, kKeys = kConfig.keys, kWarpgroups = kConfig.warpgroups;
  static constexpr int kStages = kConfig.stages;
  static constexpr bool kPingPong = kConfig.schedule == WarpgroupSchedule::kPingPong;
  static constexpr bool kPrefetchAfterMma = kConfig.prefetch == FlashPrefetch::kAfterMma;
};

template <class Cfg>
ROCM_SD_DEVICE void flash_tma_kernel(const FlashTmaParams<typename Cfg::T>& p) {
  using Body = FlashTma<Cfg>;
  Body(p, GpuArch::lds<Body::kLdsBytes>(),
       {static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::group_y()),
        static_cast<int>(GpuArch::group_z())})
      .run();
}

}  // namespace rocm_sd

// The body waits for the kernel ahead by itself.
#define ENTRY(name, T, row)                                                                         \
  ROCM_SD_CHECK_NAME(name, row, rocm_sd::kElementName<rocm_sd::T>)                                  \
  ROCM_SD_BOUNDED_KERNEL(name, __launch_bounds__((row).warpgroups * 128, (row).occupancy), (void)0, \
                         rocm_sd::FlashTmaParams<rocm_sd::T>) {                                     \
    rocm_sd::flash_tma_kernel<rocm_sd::FlashTmaCfg<rocm_sd::T, row>>(p);                            \
  }
#define ROCM_SD_ENTRY(name, row) ENTRY(name, Half, rocm_sd::KernelFamily::kFlashTma[row])
#include <entries/flash_tma_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) ENTRY(name, Bf16, rocm_sd::KernelFamily::kFlashTma[row])
#include <entries/flash_tma_bf16.inc>
#undef ROCM_SD_ENTRY
