// conv2d on NHWC with a fused epilogue, nearest-neighbour doubling in the gather, and two inputs in place of
// a concat.
#pragma once

#include "kernels/epilogue.hpp"
#include "kernels/weight.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

struct Padding {
  int top = 0, left = 0, bottom = 0, right = 0;
  static Padding same(int pixels) { return {pixels, pixels, pixels, pixels}; }
};

struct ConvArgs {
  int stride = 1;
  Padding pad;
  bool upsample2x = false;  // convolve the input doubled by nearest neighbour, without making it
  const Tensor* second =
      nullptr;  // [N,H,W,C2]: convolve the channel concat of x and second, without making it
  Epilogue epilogue;
};

// x [N,H,W,C] f32, f16 or bf16, w.weight [K,C(+C2),R,S] for products in it -> [N,P,Q,K] in epilogue.dtype,
// P = (H' + pad.top + pad.bottom - R) / stride + 1 with H' = 2H under upsample2x. Accumulates in float.
// epilogue.low_rank is not taken here.
// Throws ShapeError if the channels differ or the filter is larger than the padded input.
Tensor conv2d(Exec& ex, const Tensor& x, const ConvWeight& w, const ConvArgs& args = {});

}  // namespace rocm_sd
