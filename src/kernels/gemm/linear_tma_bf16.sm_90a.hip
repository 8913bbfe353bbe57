// linear in bf16 with tiles fetched by TMA: the configurations of ROCM_SD_GEMM_CONFIGS_TMA
// and ROCM_SD_GEGLU_CONFIGS_TMA, and those of ..._PING_PONG. Problem, mapping, traffic, numerics, limits:
// composable_kernels/hopper/gemm_tma.hpp.
#include "composable_kernels/hopper/gemm_tma.hpp"
#include "kernels/gemm/linear_entries.hpp"

#define ROCM_SD_GEMM(...) ROCM_SD_TMA_ENTRY(gemm, bf16, rocm_sd::Bf16, false, __VA_ARGS__)
#define ROCM_SD_GEGLU(...) ROCM_SD_TMA_ENTRY(geglu, bf16, rocm_sd::Bf16, true, __VA_ARGS__)
#define ROCM_SD_GEMM_TURN(...) ROCM_SD_PING_PONG_ENTRY(gemm, bf16, rocm_sd::Bf16, false, __VA_ARGS__)
#define ROCM_SD_GEGLU_TURN(...) ROCM_SD_PING_PONG_ENTRY(geglu, bf16, rocm_sd::Bf16, true, __VA_ARGS__)
ROCM_SD_GEMM_CONFIGS_TMA(ROCM_SD_GEMM)
ROCM_SD_GEGLU_CONFIGS_TMA(ROCM_SD_GEGLU)
ROCM_SD_GEMM_CONFIGS_PING_PONG(ROCM_SD_GEMM_TURN)
ROCM_SD_GEGLU_CONFIGS_PING_PONG(ROCM_SD_GEGLU_TURN)
