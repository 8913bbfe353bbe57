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

// y = act(product + bias + channel_shift + residual). The pointers must outlive the call only.
struct Epilogue {
  const Tensor* channel_shift = nullptr;  // [N,C] f32 or x's dtype, added to every pixel or token of image n
  const Tensor* residual = nullptr;       // y's shape and dtype
  Activation act = Activation::kNone;
  std::optional<DType> dtype = std::nullopt;  // of y: x's (so by default), or f32 where x is bf16
};

}  // namespace rocm_sd
