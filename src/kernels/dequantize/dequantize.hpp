// dequantize: a matrix stored in 8 bits as the type that matrix products take, made anew for every product.
#pragma once

#include "kernels/storages.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// values [rows,...] i8 or f8e4m3, contiguous, scales [rows] f32 -> [rows,...] of dtype (f32, bf16, f16), each
// element times its row's scale, rounded once. Throws UsageError for other types, ShapeError where the scales
// do not fit.
Tensor dequantize(Exec& ex, const Tensor& values, const Tensor& scales, DType dtype);

// From which types to which.
using DequantizeKernels = Storages<EightBitStorage, FloatStorage>;

}  // namespace rocm_sd
