// linear on Hopper with 8-bit operands (i8), tiles fetched by TMA: the configurations of
// ROCM_SD_EIGHT_BIT_GEMM_TMA and ROCM_SD_EIGHT_BIT_GEGLU_TMA. Problem, mapping, traffic, numerics, limits:
// composable_kernels/hopper/gemm_eight_bit_tma.hpp.
#include "composable_kernels/hopper/gemm_eight_bit_tma.hpp"
#include "kernels/gemm/linear_eight_bit_entries.hpp"

#define ROCM_SD_F16(op, kGated, ...) \
  ROCM_SD_EIGHT_BIT_TMA_ENTRY(op, i8, rocm_sd::Int8, f16, rocm_sd::Half, kGated, __VA_ARGS__)
#define ROCM_SD_BF16(op, kGated, ...) \
  ROCM_SD_EIGHT_BIT_TMA_ENTRY(op, i8, rocm_sd::Int8, bf16, rocm_sd::Bf16, kGated, __VA_ARGS__)
#define ROCM_SD_GEMM(...) ROCM_SD_F16(gemm, false, __VA_ARGS__) ROCM_SD_BF16(gemm, false, __VA_ARGS__)
#define ROCM_SD_GEGLU(...) ROCM_SD_F16(geglu, true, __VA_ARGS__) ROCM_SD_BF16(geglu, true, __VA_ARGS__)
ROCM_SD_EIGHT_BIT_GEMM_TMA(ROCM_SD_GEMM)
ROCM_SD_EIGHT_BIT_GEGLU_TMA(ROCM_SD_GEGLU)
