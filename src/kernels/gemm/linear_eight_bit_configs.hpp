// The configurations of the GPU's GEMM of 8-bit operands, per family: what linear_eight_bit.*.hip
// instantiates and linear_eight_bit.cpp launches.
#pragma once

#include "composable_kernels/tile/config.hpp"

// X(rows, channels, block_k, waves along rows, waves along channels, stages, workgroups that a
// compute unit should hold). The gated form has the first only.
#define ROCM_SD_EIGHT_BIT_GEGLU_NVIDIA(X) X(128, 128, 64, 4, 2, 4, 1)
#define ROCM_SD_EIGHT_BIT_GEMM_NVIDIA(X) ROCM_SD_EIGHT_BIT_GEGLU_NVIDIA(X) X(64, 64, 64, 2, 2, 4, 3)
// With tiles fetched by TMA (linear_eight_bit_*.sm_90a.hip): 128 rows, steps of 128;
// X(name, channels, stages, 1).
#define ROCM_SD_EIGHT_BIT_GEMM_TMA(X) X(tma, 256, 4, 1) X(tma, 160, 6, 1) X(tma, 128, 6, 1) X(tma, 64, 8, 1)
#define ROCM_SD_EIGHT_BIT_GEGLU_TMA(X) X(tma, 256, 4, 1) X(tma, 128, 6, 1)
#define ROCM_SD_EIGHT_BIT_GEGLU_RDNA4(X) X(128, 128, 64, 2, 2, 2, 1)
#define ROCM_SD_EIGHT_BIT_GEMM_RDNA4(X) ROCM_SD_EIGHT_BIT_GEGLU_RDNA4(X) X(64, 64, 64, 2, 2, 2, 1)
#define ROCM_SD_EIGHT_BIT_GEGLU_CDNA3(X) X(128, 128, 64, 2, 2, 1, 1)
#define ROCM_SD_EIGHT_BIT_GEMM_CDNA3(X) ROCM_SD_EIGHT_BIT_GEGLU_CDNA3(X) X(64, 64, 64, 2, 2, 1, 1)

namespace rocm_sd {

constexpr int kQuantiseWaves = 4;  // of a workgroup, a row each

}  // namespace rocm_sd
