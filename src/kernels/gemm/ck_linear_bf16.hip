// linear by Composable Kernel, bf16.
#include "kernels/gemm/ck_linear_entries.hpp"

ROCM_SD_CK_GEMM(bf16, ck::bhalf_t)
