// linear by Composable Kernel, f16.
#include "kernels/gemm/ck_linear_entries.hpp"

ROCM_SD_CK_GEMM(f16, ck::half_t)
