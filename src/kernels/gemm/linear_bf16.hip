// linear on a GPU, bf16: every configuration of this family.
#include "kernels/gemm/linear_entries.hpp"

#define ROCM_SD_GEMM_BF16(...) ROCM_SD_GEMM_ENTRY(gemm_bf16, rocm_sd::Bf16, false, __VA_ARGS__)
#define ROCM_SD_GEGLU_BF16(...) ROCM_SD_GEMM_ENTRY(geglu_bf16, rocm_sd::Bf16, true, __VA_ARGS__)
#if defined(__CUDACC__)
ROCM_SD_GEMM_CONFIGS_NVIDIA(ROCM_SD_GEMM_BF16)
ROCM_SD_GEGLU_CONFIGS_NVIDIA(ROCM_SD_GEGLU_BF16)
#elif defined(__GFX9__)
ROCM_SD_GEMM_CONFIGS_CDNA(ROCM_SD_GEMM_BF16)
ROCM_SD_GEGLU_CONFIGS_CDNA(ROCM_SD_GEGLU_BF16)
#else
ROCM_SD_GEMM_CONFIGS_RDNA(ROCM_SD_GEMM_BF16)
ROCM_SD_GEGLU_CONFIGS_RDNA(ROCM_SD_GEGLU_BF16)
#endif
ROCM_SD_GEMM_SMALL(bf16, rocm_sd::Bf16)
