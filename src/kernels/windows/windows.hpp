// Maps as windows and back, and channels as squares of pixels: f32, bf16 or f16.
#pragma once

#include "composable_kernels/fused/windows.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// x [1,H,W,C] -> [windows,side^2,C]: each window's pixels in raster order, the windows in WindowGrid's order.
// Throws ShapeError unless x is of the grid's size and that in whole windows, 0 <= shift < side; UsageError
// for other types.
Tensor window_partition(Exec& ex, const Tensor& x, const WindowGrid& grid);

// residual [1,H,W,C] plus x [windows,side^2,C], which is laid back where window_partition took it from.
// Throws as that.
Tensor window_reverse(Exec& ex, const Tensor& x, const Tensor& residual, const WindowGrid& grid);

// x [1,h,w,C*side^2] -> [1,h*side,w*side,C]: channel c*side^2 + v*side + u becomes the pixel in row v and
// column u of the square (PyTorch's pixel_shuffle). Throws ShapeError for other channels, UsageError for
// other types.
Tensor pixel_shuffle(Exec& ex, const Tensor& x, int64_t side);

}  // namespace rocm_sd
