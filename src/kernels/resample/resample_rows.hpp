// The host's loop of resample. Compiled per instruction set (resample_rows_isa.cpp); nothing here may have an
// inline function.
#pragma once

#include <cstdint>

namespace rocm_sd {

struct ResampleKernels {
  // y[i] = sum over j < count of weights[j] * x[j * stride + i], i < size; x f32 or bf16, y f32 or bf16.
  void (*weighted_sum)(const void* x, bool x_bf16, int64_t stride, const float* weights, int64_t count,
                       int64_t size, void* y, bool y_bf16);
};

namespace isa_baseline {
extern const ResampleKernels kResampleKernels;
}
namespace isa_v3 {
extern const ResampleKernels kResampleKernels;
}
namespace isa_v4 {
extern const ResampleKernels kResampleKernels;
}

}  // namespace rocm_sd
