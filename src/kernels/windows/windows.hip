// The kernels of windows and of squares of pixels: composable_kernels/fused/windows.hpp.
#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/windows.hpp"

namespace rocm_sd::windows {

using Float = float;

constexpr int kThreads = kWindowWaves * GpuArch::lanes;

#define ENTRY(op, Params, type, T)                                     \
  ROCM_SD_KERNEL(op##_##type, kThreads, 4, Params<T>) {                \
    op##_body(p, Block<GpuArch>{p.workgroups, rocm_sd::kWindowWaves}); \
  }
#define ENTRIES(op, Params)     \
  ENTRY(op, Params, f16, Half)  \
  ENTRY(op, Params, bf16, Bf16) \
  ENTRY(op, Params, f32, Float)

ENTRIES(window_partition, WindowPartitionParams)
ENTRIES(window_reverse, WindowReverseParams)
ENTRIES(pixel_shuffle, PixelShuffleParams)

}  // namespace rocm_sd::windows
