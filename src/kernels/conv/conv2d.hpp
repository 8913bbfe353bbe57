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

// A filter that is another one for one convolution, as a LoRA at run time makes it: filter + up down, rounded
// to x's dtype, in the memory of the run. No launch of the run may write up or down.
struct FilterChange {
  const Tensor* up = nullptr;    // [K,r] in x's dtype
  const Weight* down = nullptr;  // [r,C(+C2),R,S]
};

struct ConvArgs {
  int stride = 1;
  Padding pad;
  bool upsample2x = false;  // convolve the input doubled by nearest neighbour, without making it
  const Tensor* second =
      nullptr;  // [N,H,W,C2]: convolve the channel concat of x and second, without making it
  Epilogue epilogue;
  const FilterChange* change = nullptr;  // where conv2d_takes_change() says so
  // Where conv2d_takes_parts() says so: the result is written here, [N,P,Q,K] in the result's type, which may
  // be a part of a map's channels as x and second may; a residual then has as many elements from pixel to
  // pixel.
  const Tensor* into = nullptr;
};

// Whether conv2d takes for x, second, `into` and a residual parts of the channels of maps, such as
// map.narrow(3, first, count), whose pixels begin at multiples of 16 bytes: on GPUs by our own kernels.
bool conv2d_takes_parts(const Exec& ex);

// Whether conv2d takes slopes in its epilogue: on GPUs.
bool conv2d_takes_slopes(const Exec& ex);

// Whether conv2d of these takes a change of the filter: on GPUs by our own kernels, a filter of products'
// type, an image as large as it is stored.
bool conv2d_takes_change(const Exec& ex, const ConvWeight& w, const ConvArgs& args);

// x [N,H,W,C] f32, f16 or bf16, w.weight [K,C(+C2),R,S] for products in it -> [N,P,Q,K] in epilogue.dtype,
// P = (H' + pad.top + pad.bottom - R) / stride + 1 with H' = 2H under upsample2x. Accumulates in float.
// epilogue.low_rank is not taken here.
// Throws ShapeError if the channels differ or the filter is larger than the padded input.
Tensor conv2d(Exec& ex, const Tensor& x, const ConvWeight& w, const ConvArgs& args = {});

}  // namespace rocm_sd
