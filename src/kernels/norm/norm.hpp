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
};

// x [N,H,W,C] f32 or bf16, w.gain and w.bias [C(+C2)] -> [N,H,W,C(+C2)] in x's dtype. Mean and variance over
// a group of channels of one whole image: exact two-pass moments (no E[x^2] - E[x]^2), partial sums merged in
// double in an order that does not depend on the threads. Throws ShapeError unless the channels are a
// multiple of groups.
Tensor group_norm(Exec& ex, const Tensor& x, const NormWeight& w, const GroupNormArgs& args = {});

// x [...,C] f32 or bf16, w.gain and w.bias [C] -> x's shape and dtype; statistics over C in float.
Tensor layer_norm(Exec& ex, const Tensor& x, const NormWeight& w, float eps = 1e-5f);

}  // namespace rocm_sd
