// The entry points of linear by Composable Kernel, for one storage type: for the ck_linear_*.hip files.
// Problem    y[r] = x[r] W^T + bias + residual[r]
// Mapping    CK's "universal" GEMM: a workgroup of 256 lanes for a tile of ck_linear_params.hpp
// Traffic    x and w through LDS, the sums once more through LDS so that rows of y are written whole
// Numerics   products in float, everything added in float, one rounding
// Limits     depth beyond two tiles; depth and channels multiples of 8; operands below 2 GiB
#pragma once

#include "kernels/gemm/ck_linear_params.hpp"
#if defined(__GFX9__)
#include "kernels/gemm/ck_linear_xdl.hpp"
#else
#include "kernels/gemm/ck_linear_wmma.hpp"
#endif

// T: as Composable Kernel names the type.
#define ROCM_SD_CK_GEMM(suffix, T)                                                                           \
  extern "C" __global__ void __launch_bounds__(256) ck_gemm_##suffix(const rocm_sd::CkGemmParams p) {        \
    using namespace rocm_sd::ck_entries;                                                                     \
    Gemm<kLinearTile, T, ck::Tuple<>, ck::Tuple<>, AddAll>::run<0>(p, {}, {});                               \
  }                                                                                                          \
  extern "C" __global__ void __launch_bounds__(256) ck_gemm_##suffix##_bias(const rocm_sd::CkGemmParams p) { \
    using namespace rocm_sd::ck_entries;                                                                     \
    Gemm<kLinearTile, T, ck::Tuple<float>, ck::Tuple<Rows>, AddAll>::run<1>(p, {p.bias}, {0});               \
  }                                                                                                          \
  extern "C" __global__ void __launch_bounds__(256)                                                          \
      ck_gemm_##suffix##_bias_residual(const rocm_sd::CkGemmParams p) {                                      \
    using namespace rocm_sd::ck_entries;                                                                     \
    Gemm<kLinearTile, T, ck::Tuple<float, T>, ck::Tuple<Rows, Rows>, AddAll>::run<2>(                        \
        p, {p.bias, static_cast<const T*>(p.residual)}, {0, p.channels});                                    \
  }
