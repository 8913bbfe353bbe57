// group_norm (with SiLU) and layer_norm.
#pragma once

#include "kernels/epilogue.hpp"
#include "kernels/weight.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

struct GroupNormArgs {
  int groups = 32;
  float eps = 1e-5f;
  Activation act = Activation::kNone;  // kNone or kSilu
  const Tensor* second =
      nullptr;  // [N,H,W,C2]: normalise the channel concat of x and second; groups may straddle both
  std::optional<DType> dtype = std::nullopt;  // of the result: x's (so by default), or bf16 where x is f32
  bool in_place = false;  // the result takes x's memory: not with `second` or another dtype
};

// x [N,H,W,C] f32, bf16 or f16, w.gain and w.bias [C(+C2)] f32 -> [N,H,W,C(+C2)] in args.dtype. Mean and
// variance over a group of channels of one whole image: moments relative to a value of the group (no E[x^2] -
// E[x]^2), merged in an order that does not depend on the threads (on a GPU: on the device's size). Throws
// ShapeError unless the channels are a multiple of groups, UsageError where in_place cannot be.
Tensor group_norm(Exec& ex, const Tensor& x, const NormWeight& w, const GroupNormArgs& args = {});

// x [...,C] f32, bf16 or f16, w.gain and w.bias [C] -> x's shape; statistics over C in float. dtype as above.
Tensor layer_norm(Exec& ex, const Tensor& x, const NormWeight& w, float eps = 1e-5f,
                  std::optional<DType> dtype = std::nullopt);

}  // namespace rocm_sd
