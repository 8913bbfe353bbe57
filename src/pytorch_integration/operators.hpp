// The operators of torch.ops.rocm_sd. Each takes what python/rocm_sd_ops/_plain.py composes of PyTorch's own
// operators, which is also what runs where ours decline. Sizes in PyTorch's order: images are [N,C,H,W],
// their result laid out as [N,H,W,C] (channels_last). Wrong sizes, devices or types are errors
// (RuntimeError).
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "pytorch_integration/torch_tensor.hpp"

namespace rocm_sd::torch_ops {

// q [B,H,Nq,D], k and v [B,H,Nk,D], any strides -> [B,H,Nq,D] laid out as [B,Nq,H,D]. mask: bool (true: seen)
// or additive, broadcast to [B,H,Nq,Nk].
AtTensor attention(AtTensor q, AtTensor k, AtTensor v, OptionalAt mask, std::optional<double> scale,
                   bool causal);
// q, k, v [B,C,H,W]: attention of one head over pixels -> [B,C,H,W], channels_last.
AtTensor vae_attention(AtTensor q, AtTensor k, AtTensor v, std::optional<double> scale);

// x [N,C,H,W] (with x2 [N,C2,H,W] as if concatenated), weight and bias [C+C2] -> channels_last.
AtTensor group_norm_silu(AtTensor x, int64_t groups, OptionalAt weight, OptionalAt bias, double eps,
                         bool silu, OptionalAt x2);
AtTensor layer_norm(AtTensor x, OptionalAt weight, OptionalAt bias, double eps);
// (layer_norm(x + residual), x + residual), over the last dimension.
std::tuple<AtTensor, AtTensor> layer_norm_residual(AtTensor x, AtTensor residual, OptionalAt weight,
                                                   OptionalAt bias, double eps);

// x [...,2C] -> [...,C]: first half times gelu of the second.
AtTensor geglu(AtTensor x);
// act(x W^T + bias + residual), or GEGLU of x W^T + bias. x [...,K], weight [M,K] -> [...,M].
AtTensor linear_epilogue(AtTensor x, AtTensor weight, OptionalAt bias, OptionalAt residual, std::string act,
                         bool geglu, int64_t pack);

// act(conv(x) + bias + channel_shift + residual), channels_last. padding: top, left, bottom, right.
AtTensor conv2d_epilogue(AtTensor x, AtTensor weight, OptionalAt bias, int64_t stride,
                         std::vector<int64_t> padding, OptionalAt channel_shift, OptionalAt residual,
                         std::string act, OptionalAt x2, int64_t pack);
// Convolution (stride 1, padding on every side) of x doubled by nearest neighbour.
AtTensor upsample2x_conv(AtTensor x, AtTensor weight, OptionalAt bias, int64_t padding, int64_t pack);

// sample_scale * sample + output_scale * guided + noise_scale * noise + previous_scale * previous, where
// guided is model_output, or uncond + guidance * (cond - uncond) where model_output holds both halves, uncond
// first.
AtTensor scheduler_step(AtTensor sample, AtTensor model_output, double sample_scale, double output_scale,
                        double guidance, OptionalAt noise, double noise_scale, OptionalAt previous,
                        double previous_scale);

// An op by its name and a problem's text ("dequantize", "i8 to f16 [320,1280]") on its inputs in their order,
// each read as row-major in the problem's shape -> the op's first output. No gradients.
AtTensor run_op(std::vector<AtTensor> inputs, std::string op, std::string problem);
// Type and extents of that output: "f16 320 1280".
std::string op_result(std::string op, std::string problem);

// What this machine can do and lacks, as `rocm-sd doctor` prints it.
std::string doctor_report();

}  // namespace rocm_sd::torch_ops
