// resample: resizing of NHWC maps.
#pragma once

#include "runtime/exec.hpp"

namespace rocm_sd {

enum class ResampleMode { kNearest, kBilinear, kBicubic, kArea, kLanczos3 };

// x [N,H,W,C] f32, bf16 or f16 -> [N,height,width,C]. Pixel centres at half integers (align_corners=false).
// kNearest: floor((i + 0.5) * scale) for integer factors equals repetition. kBilinear, kBicubic (a = -0.5)
// and kLanczos3 widen their kernel by the scale when shrinking (antialias, as Pillow and torch's
// antialias=True do). kArea: exact box mean.
Tensor resample(Exec& ex, const Tensor& x, int64_t height, int64_t width, ResampleMode mode);

}  // namespace rocm_sd
