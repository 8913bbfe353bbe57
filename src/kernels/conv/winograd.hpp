// The transforms of Winograd's F(4x4, 3x3) (Lavin and Gray, "Fast Algorithms for Convolutional Neural
// Networks", 2016, section 4.3), compiled per instruction set (winograd_isa.cpp); nothing here may have an
// inline function. A tile is 6x6 input pixels and 4x4 output pixels; its 36 products stand in [row][column]
// order.
#pragma once

#include <cstdint>

namespace rocm_sd {

constexpr int kWinogradOut = 4, kWinogradIn = 6, kWinogradProducts = 36;

struct WinogradKernels {
  // out[i * out_stride + c] = (B^T d B)[i] of channel c, d being the pixels[36]; channels: a multiple of 16.
  void (*input)(const float* const* pixels, int64_t channels, float* out, int64_t out_stride);
  // pixels[i * columns + k] = (A^T m A)[i] of column k, m being products[j * stride + k]; columns: a multiple
  // of the vector length.
  void (*output)(const float* products, int64_t stride, int columns, float* pixels);
};

// For the host's instruction set (host_isa()).
const WinogradKernels& winograd_kernels();

namespace isa_baseline {
extern const WinogradKernels kWinogradKernels;
}
namespace isa_v3 {
extern const WinogradKernels kWinogradKernels;
}
namespace isa_v4 {
extern const WinogradKernels kWinogradKernels;
}

}  // namespace rocm_sd
