// Elementwise ops that no producer could fuse, on f32, bf16 and f16.
#pragma once

#include "kernels/epilogue.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// x any shape, f32, bf16 or f16 -> same shape and dtype; computed in float.
Tensor activate(Exec& ex, const Tensor& x, Activation act);
// x where it is not negative, slope * x elsewhere.
Tensor leaky_relu(Exec& ex, const Tensor& x, float slope);
// The same into y of x's numel and type, which may be rows that lie apart, as a range of a wider map's
// channels.
void leaky_relu_into(Exec& ex, const Tensor& x, float slope, const Tensor& y);
// leaky_relu with a slope for each channel: x [...,C], slopes [C] of x's type. Throws ShapeError otherwise.
Tensor prelu(Exec& ex, const Tensor& x, const Tensor& slopes);
// value * gelu(gate): x [...,2C] -> [...,C], value first (the plain composition of linear_geglu).
Tensor geglu(Exec& ex, const Tensor& x);
// a + b, same shape and dtype.
Tensor add(Exec& ex, const Tensor& a, const Tensor& b);
// a + factors[n] * b for each image n: a and b [N,...] of one shape and dtype, factors [N] f32, which are
// read when the launch runs: a replay sees their values of then. Throws ShapeError otherwise.
Tensor add_scaled(Exec& ex, const Tensor& a, const Tensor& b, const Tensor& factors);
// The same for rows [R,C] that may lie apart, into such; factors [R]. b may be one row [C] for all.
void add_scaled_into(Exec& ex, const Tensor& a, const Tensor& b, const Tensor& factors, const Tensor& y);
// [..., Ca] and [..., Cb] of one dtype -> [..., Ca + Cb] (the plain composition of the two-input ops).
Tensor concat_channels(Exec& ex, const Tensor& a, const Tensor& b);
// scale * x + shift, per tensor.
Tensor affine(Exec& ex, const Tensor& x, float scale, float shift);
// limit * tanh(x / limit): TAESD's input clamp.
Tensor soft_clamp(Exec& ex, const Tensor& x, float limit);
// To another float type, contiguous.
Tensor cast(Exec& ex, const Tensor& x, DType dtype);
// x as a sum of two bf16, laid out for a product: x [...,C] f32, beside it second [...,C2] ->
// [...,parts * (C+C2)] bf16, being the high parts of all channels, their low parts, and, if parts is 3 rather
// than 2, the high parts again. Against a weight laid out as [high, high] this gives the product of x and the
// rounded weight, against [high, high, low] that of both but for low x low: an error of 2^-16 in place of
// bf16's 2^-8 (Henry, Tang, Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For
// Higher-Precision Computations", 2019).
Tensor split_bf16(Exec& ex, const Tensor& x, int64_t parts, const Tensor* second = nullptr);
// Copies x into y (same numel; converts between float types, any type to itself): how a forward leaves its
// result in a persistent tensor. Either may be rows that lie apart, as a window of a map does. Throws
// ShapeError for strides that need more than two levels.
void copy_into(Exec& ex, const Tensor& x, const Tensor& y);

}  // namespace rocm_sd
