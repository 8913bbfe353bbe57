#include "models/wrapping.hpp"

#include <utility>

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/resample/resample.hpp"

namespace rocm_sd {
namespace {

thread_local WrapAxes at_work;

// x with the last `pixels` of an axis before its first and the first behind its last. As many copies whatever
// the batch: a step of many launches would cost more than the bytes.
Tensor wrapped_axis(Exec& ex, const Tensor& x, int axis, int64_t pixels) {
  Shape shape = x.shape();
  const int64_t size = shape[axis];
  shape[axis] = size + 2 * pixels;
  Tensor out = ex.alloc(shape, x.dtype());
  copy_into(ex, x, out.narrow(axis, pixels, size));
  copy_into(ex, x.narrow(axis, size - pixels, pixels), out.narrow(axis, 0, pixels));
  copy_into(ex, x.narrow(axis, 0, pixels), out.narrow(axis, pixels + size, pixels));
  return out;
}

}  // namespace

WrapScope::WrapScope(const WrapAxes& axes) : before_(std::exchange(at_work, axes)) {}
WrapScope::~WrapScope() { at_work = before_; }
const WrapAxes& wraps_at_work() { return at_work; }

Tensor wrapped(Exec& ex, const Tensor& x, const WrapAxes& axes, ConvArgs& args) {
  Padding& pad = args.pad;
  const bool wraps_x = axes.x && pad.left > 0 && pad.left == pad.right;
  const bool wraps_y = axes.y && pad.top > 0 && pad.top == pad.bottom;
  if (!wraps_x && !wraps_y) return x;
  Tensor out = x;
  if (std::exchange(args.upsample2x, false))
    out = resample(ex, out, 2 * x.dim(1), 2 * x.dim(2), ResampleMode::kNearest);  // [N,2H,2W,C]
  require(pad.left <= out.dim(2) && pad.top <= out.dim(1), "tiling: a map of ", out.dim(1), " x ", out.dim(2),
          " is smaller than the padding of its convolution");
  if (wraps_x) out = wrapped_axis(ex, out, 2, pad.left);  // [N,H,W+2p,C]
  if (wraps_y) out = wrapped_axis(ex, out, 1, pad.top);   // [N,H+2p,W+2p,C]
  if (wraps_x) pad.left = pad.right = 0;
  if (wraps_y) pad.top = pad.bottom = 0;
  return out;
}

}  // namespace rocm_sd
