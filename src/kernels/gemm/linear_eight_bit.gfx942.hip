// linear on gfx942 with 8-bit operands: every configuration. gfx90a has no such instructions.
#include "composable_kernels/arch/eight_bit_cdna3.hpp"
#include "kernels/gemm/linear_eight_bit_entries.hpp"

ROCM_SD_EIGHT_BIT_INTEGERS(ROCM_SD_EIGHT_BIT_GEMM_CDNA3, ROCM_SD_EIGHT_BIT_GEGLU_CDNA3)
ROCM_SD_EIGHT_BIT_FLOATS(ROCM_SD_EIGHT_BIT_GEMM_CDNA3, ROCM_SD_EIGHT_BIT_GEGLU_CDNA3)
