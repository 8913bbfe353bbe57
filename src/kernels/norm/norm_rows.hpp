// The host's loops of group_norm and layer_norm. Compiled per instruction set (norm_rows_isa.cpp); nothing
// here may have an inline function.
#pragma once

#include <cstdint>

namespace rocm_sd {

// Some pixels of [pixels, channels], rows `stride` elements apart.
struct NormPixels {
  const void* data;
  int64_t stride;
  bool bf16;  // else f32
  int64_t pixels, channels;
};

struct NormKernels {
  // mean[c] of each channel, and the sum of the squares of what differs from it.
  void (*channel_moments)(const NormPixels& x, float* mean, float* squares);
  // y = act((x - mean[c]) * scale[c] + bias[c]), rows of y y_stride apart; y is bf16 or else f32.
  void (*normalise_channels)(const NormPixels& x, const float* mean, const float* scale, const float* bias,
                             bool silu, void* y, int64_t y_stride, bool y_bf16);
  // Each row by its own mean and variance; rows of y lie as those of x.
  void (*layer_norm)(const NormPixels& x, const float* gain, const float* bias, float eps, void* y,
                     bool y_bf16);
};

// Those for this CPU.
const NormKernels& host_norm_kernels();

// Needs AVX512-BF16 (host_has_bf16()) and x86-64.
namespace isa_v4_bf16 {
extern const NormKernels kNormKernels;
}
namespace isa_baseline {
extern const NormKernels kNormKernels;
}
namespace isa_v3 {
extern const NormKernels kNormKernels;
}
namespace isa_v4 {
extern const NormKernels kNormKernels;
}

}  // namespace rocm_sd
