// linear by Composable Kernel: what launcher and kernels share.
#pragma once

namespace rocm_sd {

// y = x W^T (+ bias (+ residual)), rounded once. x, w, residual and y of one 16-bit type.
struct CkGemmParams {
  const void* x = nullptr;         // [rows,depth], rows x_stride elements apart
  const void* w = nullptr;         // [channels,depth]
  const float* bias = nullptr;     // [channels]
  const void* residual = nullptr;  // [rows,channels]
  void* y = nullptr;               // [rows,channels]
  int rows = 0, channels = 0, depth = 0, x_stride = 0;
};

// The instances' tiles: XDL is CDNA's, WMMA RDNA's. m_repeats, n_repeats: matrix instructions of a wave along
// each.
struct CkGemmTile {
  int m, n, k, m_repeats, n_repeats, threads;
  // The pipeline of an instance has two tiles under way before its loop begins.
  constexpr int least_depth() const { return 2 * k + 1; }
};
inline constexpr CkGemmTile kCkGemmXdl = {128, 128, 64, 2, 2, 256};
inline constexpr CkGemmTile kCkGemmWmma = {128, 128, 32, 4, 2, 256};

}  // namespace rocm_sd
