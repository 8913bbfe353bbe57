#include "kernel_library/problem.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/attention/attention_op.hpp"
#include "kernels/conv/conv2d_op.hpp"
#include "kernels/elementwise/geglu_op.hpp"
#include "kernels/gemm/linear_op.hpp"
#include "kernels/norm/norm_op.hpp"

namespace rocm_sd::library {
namespace {

DType dtype_of(rocm_sd_kernels_dtype dtype) {
  switch (dtype) {
    case ROCM_SD_KERNELS_F32: return DType::kF32;
    case ROCM_SD_KERNELS_F16: return DType::kF16;
    case ROCM_SD_KERNELS_BF16: return DType::kBF16;
  }
  throw ShapeError(concat("dtype ", static_cast<int>(dtype), ": expected 0 (f32), 1 (f16) or 2 (bf16)"));
}

Activation activation_of(rocm_sd_kernels_activation act) {
  switch (act) {
    case ROCM_SD_KERNELS_NO_ACTIVATION: return Activation::kNone;
    case ROCM_SD_KERNELS_SILU: return Activation::kSilu;
    case ROCM_SD_KERNELS_GELU: return Activation::kGelu;
    case ROCM_SD_KERNELS_QUICK_GELU: return Activation::kQuickGelu;
    case ROCM_SD_KERNELS_RELU: return Activation::kRelu;
  }
  throw ShapeError(concat("activation ", static_cast<int>(act), ": expected 0 to 4"));
}

AttentionSpec::HeadStrides strides_of(const rocm_sd_kernels_head_strides& s) {
  return {s.batch, s.head, s.row};
}

}  // namespace

Problem attention_problem(const rocm_sd_kernels_attention& p) {
  AttentionSpec spec{.dtype = dtype_of(p.dtype),
                     .batch = p.batch,
                     .heads = p.heads,
                     .queries = p.queries,
                     .keys = p.keys,
                     .head_dim = p.head_dim,
                     .masked = p.masked != 0,
                     .causal = p.causal != 0,
                     .q = strides_of(p.q),
                     .k = strides_of(p.k),
                     .v = strides_of(p.v),
                     .y = strides_of(p.y),
                     .scale = p.scale};
  std::ranges::copy(p.mask_strides, spec.mask_strides);
  return Op<AttentionSpec>::problem(spec);
}

Problem linear_problem(const rocm_sd_kernels_linear& p) {
  require_extent("linear", "out", p.out, 1);
  return Op<LinearSpec>::problem({.dtype = dtype_of(p.dtype),
                                  .rows = p.rows,
                                  .columns = p.gated ? 2 * p.out : p.out,
                                  .in = p.in,
                                  .bias = p.has_bias != 0,
                                  .residual = p.has_residual != 0,
                                  .gated = p.gated != 0,
                                  .act = activation_of(p.activation),
                                  .x_stride = p.x_stride});
}

Problem conv2d_problem(const rocm_sd_kernels_conv2d& p) {
  return Op<ConvSpec>::problem({.dtype = dtype_of(p.dtype),
                                .batch = p.batch,
                                .height = p.height,
                                .width = p.width,
                                .channels = p.channels,
                                .second_channels = p.second_channels,
                                .out_channels = p.out_channels,
                                .filter_h = p.filter_h,
                                .filter_w = p.filter_w,
                                .stride = p.stride ? p.stride : 1,
                                .pad_top = p.pad_top,
                                .pad_left = p.pad_left,
                                .pad_bottom = p.pad_bottom,
                                .pad_right = p.pad_right,
                                .upsample2x = p.upsample2x != 0,
                                .bias = p.has_bias != 0,
                                .shift = p.has_channel_shift != 0,
                                .residual = p.has_residual != 0,
                                .act = activation_of(p.activation)});
}

Problem group_norm_problem(const rocm_sd_kernels_group_norm& p) {
  return Op<GroupNormSpec>::problem({.dtype = dtype_of(p.dtype),
                                     .batch = p.batch,
                                     .pixels = p.pixels,
                                     .channels = p.channels,
                                     .second_channels = p.second_channels,
                                     .groups = p.groups,
                                     .act = activation_of(p.activation),
                                     .eps = p.eps});
}

Problem layer_norm_problem(const rocm_sd_kernels_layer_norm& p) {
  return Op<LayerNormSpec>::problem({.dtype = dtype_of(p.dtype),
                                     .rows = p.rows,
                                     .channels = p.channels,
                                     .residual = p.has_residual != 0,
                                     .eps = p.eps});
}

Problem geglu_problem(const rocm_sd_kernels_geglu& p) {
  require_extent("geglu", "channels", p.channels, 1);
  return Op<GegluSpec>::problem({.dtype = dtype_of(p.dtype), .rows = p.rows, .columns = 2 * p.channels});
}

}  // namespace rocm_sd::library
