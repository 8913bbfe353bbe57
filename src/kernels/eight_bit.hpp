// Matrices in 8 bits with one scale per row, made and read on the host.
#pragma once

#include <cstdint>

#include "runtime/tensor.hpp"

namespace rocm_sd {

inline bool is_eight_bit(DType type) { return type == DType::kI8 || type == DType::kF8E4M3; }

// rows of `columns` floats -> values (the same places, one byte each) and scales [rows], so that
// row ~ values * scale: a row's largest magnitude becomes 127 (i8) or 448 (f8e4m3), the rest is rounded to
// nearest even. Never a negative zero or a NaN; a row that is not finite gets a scale that is a NaN, so that
// damage shows in the picture as it does without. A row of zeros, or of no magnitude above 1e-30, is stored
// as zeros with scale 1. type: kI8 or kF8E4M3.
void quantise_rows(const float* from, int64_t rows, int64_t columns, DType type, void* values, float* scales);

// values [out,...] of kI8 or kF8E4M3, scales [out] f32, contiguous on one device -> a new tensor [out,...] of
// dtype (f32, bf16 or f16) there, rounded once. Costly on a GPU: by way of the host.
Tensor dequantized(const Tensor& values, const Tensor& scales, DType dtype);

}  // namespace rocm_sd
