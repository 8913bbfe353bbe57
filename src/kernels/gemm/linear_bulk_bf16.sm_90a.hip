// linear in bf16 with tiles fetched by Hopper's copy engine: the configurations of ROCM_SD_GEMM_CONFIGS_BULK
// and ROCM_SD_GEGLU_CONFIGS_BULK, and those of ..._TURNS. Problem, mapping, traffic, numerics, limits:
// composable_kernels/fused/gemm_bulk.hpp.
#include "composable_kernels/fused/gemm_bulk.hpp"
#include "kernels/gemm/linear_entries.hpp"

#define ROCM_SD_GEMM(...) ROCM_SD_BULK_ENTRY(gemm, bf16, rocm_sd::Bf16, false, __VA_ARGS__)
#define ROCM_SD_GEGLU(...) ROCM_SD_BULK_ENTRY(geglu, bf16, rocm_sd::Bf16, true, __VA_ARGS__)
#define ROCM_SD_GEMM_TURN(...) ROCM_SD_TURN_ENTRY(gemm, bf16, rocm_sd::Bf16, false, __VA_ARGS__)
#define ROCM_SD_GEGLU_TURN(...) ROCM_SD_TURN_ENTRY(geglu, bf16, rocm_sd::Bf16, true, __VA_ARGS__)
ROCM_SD_GEMM_CONFIGS_BULK(ROCM_SD_GEMM)
ROCM_SD_GEGLU_CONFIGS_BULK(ROCM_SD_GEGLU)
ROCM_SD_GEMM_CONFIGS_TURNS(ROCM_SD_GEMM_TURN)
ROCM_SD_GEGLU_CONFIGS_TURNS(ROCM_SD_GEGLU_TURN)
