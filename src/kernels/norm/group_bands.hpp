// group_norm in three steps, for images that lie in bands of rows: the moments of each band, their merger,
// and the normalising of any rows. Together they give what group_norm gives, within rounding.
#pragma once

#include "kernels/epilogue.hpp"
#include "kernels/weight.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// Rows of moments that group_moments writes for so many pixels.
int64_t moment_rows(int64_t pixels);

// x [N,R,W,C] f32, bf16 or f16, C a multiple of groups -> count, mean and sum of squared differences of each
// group, for moment_rows(R * W) runs of pixels of each image: written to out [N,moment_rows,groups,3] f32, of
// each image contiguous; of one image also [moment_rows,groups,3]. Exact two-pass moments, float within a
// run. Throws ShapeError where the shapes do not fit.
void group_moments(Exec& ex, const Tensor& x, int groups, const Tensor& out);

// The moments of all bands [N,M,groups,3] merged in double, in the order of the rows (Chan, Golub, LeVeque,
// "Updating Formulae", 1979) -> [N,2,C] f32: each channel's mean, and its gain over the deviation. Of one
// image also [M,groups,3] -> [2,C].
Tensor group_scale(Exec& ex, const Tensor& moments, const NormWeight& w, float eps);

// Rows of other ranks beside a map [N,R,W,C]: [N,1,W,C] each, or empty.
struct EdgeRows {
  Tensor above, below;
};

// y = act((x - scale[0]) * scale[1] + bias), channel by channel: x [N,R,W,C] between the edges' rows, scale
// [N,2,C] or of one image [2,C] -> y [N,R + 0..2,W,C] of x's dtype; all contiguous. act: kNone or kSilu.
// Throws ShapeError and UsageError.
void normalise_channels(Exec& ex, const Tensor& x, const Tensor& scale, const NormWeight& w, Activation act,
                        const Tensor& y, const EdgeRows& edges = {});

}  // namespace rocm_sd
