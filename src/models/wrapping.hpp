// Wrapping: maps whose right border lies beside their left one, and whose lower border beside their upper
// one. The ops on layers pad such maps with what lies at the other side, in place of zeros (A1111's "tiling",
// which sets the padding mode of every convolution to circular).
#pragma once

#include "kernels/conv/conv2d.hpp"

namespace rocm_sd {

struct WrapAxes {
  bool x = false, y = false;
  bool any() const { return x || y; }
  friend bool operator==(const WrapAxes&, const WrapAxes&) = default;
};

// The ops on layers of this thread work on maps that wrap while this lives.
class WrapScope {
 public:
  explicit WrapScope(const WrapAxes& axes);
  ~WrapScope();
  WrapScope(const WrapScope&) = delete;
  WrapScope& operator=(const WrapScope&) = delete;

 private:
  WrapAxes before_;
};
// What the innermost scope says.
const WrapAxes& wraps_at_work();

// What a convolution with these arguments reads in place of x [N,H,W,C]: x, doubled where args say so, with
// the other side's pixels on the axes that wrap. args pad and double no more there. Where the padding of an
// axis differs from side to side, as above a VAE encoder's downsampler, it stays zeros: Diffusers and A1111
// pad there before the convolution.
Tensor wrapped(Exec& ex, const Tensor& x, const WrapAxes& axes, ConvArgs& args);

}  // namespace rocm_sd
