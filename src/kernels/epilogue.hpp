// What an op does to its result before writing it: one value type for GEMM and convolution.
#pragma once

#include <optional>

#include "runtime/tensor.hpp"

namespace rocm_sd {

enum class Activation {
  kNone,
  kSilu,
  kGelu,
  kQuickGelu,
  kRelu
};  // kGelu is the erf form; kQuickGelu x * sigmoid(1.702 x)

std::string_view activation_name(Activation act);

class Weight;

// A product of low rank beside a linear layer's own: states up^T, as of a LoRA that is not merged.
struct LowRankProduct {
  const Tensor* states = nullptr;  // [...,R] with y's rows, contiguous, in x's dtype
  const Weight* up = nullptr;      // [C,R] in x's dtype; of a GEGLU the 2C rows of its weight
  // The launch before made the states, and everything else that is read was complete when it began: on Hopper
  // the product then begins beside it.
  bool states_last = false;
};

// y = act(channel_scale * (product + low_rank + bias + channel_shift) + residual), and with slopes, whose act
// is kNone, values below zero times their channel's slope. The pointers must outlive the call only.
struct Epilogue {
  const Tensor* channel_shift = nullptr;  // [N,C] f32 or x's dtype, added to every pixel or token of image n
  const Tensor* residual = nullptr;       // y's shape and dtype
  Activation act = Activation::kNone;
  std::optional<DType> dtype = std::nullopt;  // of y: x's (so by default), or f32 where x is bf16
  const Tensor* channel_scale = nullptr;  // [N,C] or [N,1] f32, for each N-th of the pixels or rows; on GPUs
  const LowRankProduct* low_rank = nullptr;  // of linear layers
  // No launch of this run writes what a linear layer reads: on Hopper its product then begins beside the
  // launch before, and waits for it only to write.
  bool reads_constants = false;
  const Tensor* slopes = nullptr;  // [C] f32; of conv2d on GPUs
};

}  // namespace rocm_sd
