// linear on a GPU, f16: every configuration of this family.
#include "kernels/gemm/linear_entries.hpp"

#define ROCM_SD_GEMM_F16(...) ROCM_SD_GEMM_ENTRY(gemm_f16, rocm_sd::Half, false, __VA_ARGS__)
#define ROCM_SD_GEGLU_F16(...) ROCM_SD_GEMM_ENTRY(geglu_f16, rocm_sd::Half, true, __VA_ARGS__)
#if defined(__CUDACC__)
ROCM_SD_GEMM_CONFIGS_NVIDIA(ROCM_SD_GEMM_F16)
ROCM_SD_GEGLU_CONFIGS_NVIDIA(ROCM_SD_GEGLU_F16)
#elif defined(__GFX9__)
ROCM_SD_GEMM_CONFIGS_CDNA(ROCM_SD_GEMM_F16)
ROCM_SD_GEGLU_CONFIGS_CDNA(ROCM_SD_GEGLU_F16)
#else
ROCM_SD_GEMM_CONFIGS_RDNA(ROCM_SD_GEMM_F16)
ROCM_SD_GEGLU_CONFIGS_RDNA(ROCM_SD_GEGLU_F16)
#endif
ROCM_SD_GEMM_SMALL(f16, rocm_sd::Half)
