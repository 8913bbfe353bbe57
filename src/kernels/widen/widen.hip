// The kernels of widen: widen_<8-bit type>_<type>, those that widen a doubled image's filters, and the layout
// of filters in 8 bits.
// Problem, mapping, traffic, numerics, limits: composable_kernels/fused/widen.hpp.
#include "composable_kernels/fused/widen.hpp"

#include "composable_kernels/arch/target.hpp"
#include "kernels/widen/widen_configs.hpp"

using namespace rocm_sd;
using namespace rocm_sd::widen_configs;

static ROCM_SD_DEVICE int64_t lane_index() {
  return static_cast<int64_t>(GpuArch::group_x()) * kThreads + GpuArch::thread();
}

// A macro's argument ends at a comma: the parameters' types get names first.
#define ROCM_SD_WIDEN(from, From, to, To)                                              \
  using Widen_##from##_##to = WidenParams<From, To>;                                   \
  using WidenPhases_##from##_##to = WidenPhasesParams<From, To>;                       \
  ROCM_SD_KERNEL(widen_##from##_##to, kThreads, 4, Widen_##from##_##to) {              \
    widen_body<GpuArch>(p, Block<GpuArch>{p.groups, kThreads / GpuArch::lanes});       \
  }                                                                                    \
  ROCM_SD_KERNEL(widen_phases_##from##_##to, kThreads, 4, WidenPhases_##from##_##to) { \
    widen_phases_body(p, lane_index());                                                \
  }
#define ROCM_SD_WIDEN_FROM(from, From)  \
  ROCM_SD_WIDEN(from, From, f16, Half)  \
  ROCM_SD_WIDEN(from, From, bf16, Bf16) \
  ROCM_SD_WIDEN(from, From, f32, float)
ROCM_SD_WIDEN_FROM(i8, Int8)
ROCM_SD_WIDEN_FROM(f8e4m3, Fp8)

ROCM_SD_KERNEL(conv_pack_bytes, kThreads, 4, FilterParams<uint8_t>) { pack_bytes_body(p, lane_index()); }
ROCM_SD_KERNEL(conv_unpack_bytes, kThreads, 4, FilterParams<uint8_t>) { conv_unpack_body(p, lane_index()); }
