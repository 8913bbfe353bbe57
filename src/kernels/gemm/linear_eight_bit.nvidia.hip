// linear on NVIDIA with 8-bit operands: every configuration; e4m3 from sm_89 on.
#include "composable_kernels/arch/eight_bit_nvidia.hpp"
#include "kernels/gemm/linear_eight_bit_entries.hpp"

ROCM_SD_EIGHT_BIT_INTEGERS(ROCM_SD_EIGHT_BIT_GEMM_NVIDIA, ROCM_SD_EIGHT_BIT_GEGLU_NVIDIA)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
ROCM_SD_EIGHT_BIT_FLOATS(ROCM_SD_EIGHT_BIT_GEMM_NVIDIA, ROCM_SD_EIGHT_BIT_GEGLU_NVIDIA)
#endif
