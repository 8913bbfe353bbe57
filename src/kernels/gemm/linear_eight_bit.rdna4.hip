// linear on RDNA4 with 8-bit operands: every configuration.
#include "composable_kernels/arch/eight_bit_rdna4.hpp"
#include "kernels/gemm/linear_eight_bit_entries.hpp"

ROCM_SD_EIGHT_BIT_INTEGERS(ROCM_SD_EIGHT_BIT_GEMM_RDNA4, ROCM_SD_EIGHT_BIT_GEGLU_RDNA4)
ROCM_SD_EIGHT_BIT_FLOATS(ROCM_SD_EIGHT_BIT_GEMM_RDNA4, ROCM_SD_EIGHT_BIT_GEGLU_RDNA4)
