// conv2d by Composable Kernel: what launcher and kernels share.
#pragma once

#include "kernels/gemm/ck_linear_params.hpp"

namespace rocm_sd {

// y [batch,out_h,out_w,outputs] = act(conv(x [batch,height,width,channels], w
// [outputs,filter_h,filter_w,channels]) + bias
// (+ residual)). gemm: the same as a product over windows: x, w, bias, residual and y, rows = batch * out_h *
// out_w, depth = filter_h * filter_w * channels.
struct CkConvParams {
  CkGemmParams gemm;
  int batch = 0, height = 0, width = 0, channels = 0;
  int filter_h = 0, filter_w = 0, out_h = 0, out_w = 0, stride = 1;
  int pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  int act = 0;  // 0: none, 1: SiLU, 2: ReLU
};

// The windows' descriptor takes registers beside the products: on RDNA a tile of 128 rows would spill.
inline constexpr CkGemmTile kCkConvXdl = kCkGemmXdl;
inline constexpr CkGemmTile kCkConvWmma = {64, 128, 32, 2, 2, 256};

}  // namespace rocm_sd
