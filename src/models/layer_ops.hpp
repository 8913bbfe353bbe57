// Ops on layers. A layer's matrix may be stored in another type than the maps between layers have, or as
// split bf16 (Precision): each op makes of x what its layer multiplies first.
#pragma once

#include "kernels/conv/conv2d.hpp"
#include "kernels/gemm/linear.hpp"
#include "kernels/norm/norm.hpp"
#include "models/layers.hpp"

namespace rocm_sd {

// What a norm before the layer writes: the layer's operand, or what that is made of.
template <class Layer>
DType operand_type(const Layer& layer) {
  return is_split(layer) ? DType::kF32 : layer.weight.dtype();
}

// The ops of src/kernels, on layers. x of any float type; by value, so that its memory can be reused once the
// operand is made.
Tensor linear(Exec& ex, Tensor x, const Linear& layer, const Epilogue& epilogue = {});
Tensor linear(Exec& ex, Tensor x, const StackedLinear& layer, const Epilogue& epilogue = {});
Tensor linear_geglu(Exec& ex, Tensor x, const Linear& layer);
Tensor conv2d(Exec& ex, Tensor x, const Conv& layer, ConvArgs args = {});
// Of the concat of x and second along the channels, which is never made.
Tensor conv2d(Exec& ex, Tensor x, Tensor second, const Conv& layer, ConvArgs args = {});

// linear() with its result in dtype, which is rounded once: from the sums, or from f32.
Tensor linear_as(Exec& ex, Tensor x, const Linear& layer, DType dtype);
Tensor linear_as(Exec& ex, Tensor x, const StackedLinear& layer, DType dtype);

// group_norm with its result in dtype.
Tensor group_norm_as(Exec& ex, const Tensor& x, const Norm& norm, int64_t groups, DType dtype);
// group_norm, in place where nobody else needs x. second may be empty: the concat of x and second.
Tensor group_norm_silu(Exec& ex, Tensor x, Tensor second, const Norm& norm, int64_t groups, DType dtype);

// conv2d of group_norm_silu of x, or of the concat of x and second: a 3x3 convolution with padding 1. On
// divided rows both take one exchange.
Tensor norm_silu_conv2d(Exec& ex, Tensor x, Tensor second, const Norm& norm, int64_t groups, const Conv& conv,
                        ConvArgs args);

// x in dtype: a copy only where it has another one.
Tensor as_dtype(Exec& ex, const Tensor& x, DType dtype);

}  // namespace rocm_sd
