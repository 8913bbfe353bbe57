// The kernels of dequantize, of a doubled image's filters, and of the layout of filters in 8 bits.
// Problem, mapping, traffic, numerics, limits: composable_kernels/fused/dequantize.hpp.
#include "composable_kernels/fused/dequantize.hpp"

#include "kernels/memory_bound_kernels.hpp"

using namespace rocm_sd;

ROCM_SD_OP2_FLOATS(dequantize, DequantizeParams, i8)
ROCM_SD_OP2_FLOATS(dequantize, DequantizeParams, f8e4m3)

static ROCM_SD_DEVICE int64_t lane_index() {
  return static_cast<int64_t>(GpuArch::group_x()) * kMemoryBoundThreads + GpuArch::thread();
}

// A macro's argument ends at a comma: the parameters' types get names first.
#define PHASES(from, to)                                                                          \
  using Phases_##from##_##to = DequantizePhasesParams<storage::from, storage::to>;                \
  ROCM_SD_KERNEL(dequantize_phases_##from##_##to, kMemoryBoundThreads, 4, Phases_##from##_##to) { \
    dequantize_phases_body(p, lane_index());                                                      \
  }
PHASES(i8, f16)
PHASES(i8, bf16)
PHASES(i8, f32)
PHASES(f8e4m3, f16)
PHASES(f8e4m3, bf16)
PHASES(f8e4m3, f32)

ROCM_SD_KERNEL(conv_pack_bytes, kMemoryBoundThreads, 4, FilterParams<uint8_t>) {
  pack_bytes_body(p, lane_index());
}
ROCM_SD_KERNEL(conv_unpack_bytes, kMemoryBoundThreads, 4, FilterParams<uint8_t>) {
  conv_unpack_body(p, lane_index());
}
