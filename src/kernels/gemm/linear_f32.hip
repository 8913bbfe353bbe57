// linear on a GPU, f32 by ordinary multiply-adds: what --dtype f32 and re-runs in a wider type use.
#include "kernels/gemm/linear_entries.hpp"

#define ROCM_SD_GEMM_F32(...) ROCM_SD_GEMM_ENTRY(gemm_f32, float, false, __VA_ARGS__)
#define ROCM_SD_GEGLU_F32(...) ROCM_SD_GEMM_ENTRY(geglu_f32, float, true, __VA_ARGS__)
ROCM_SD_GEMM_CONFIGS_F32(ROCM_SD_GEMM_F32)
ROCM_SD_GEMM_CONFIGS_F32(ROCM_SD_GEGLU_F32)
ROCM_SD_GEMM_SMALL(f32, float)
