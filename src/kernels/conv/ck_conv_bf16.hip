// conv2d by Composable Kernel, bf16.
#include "kernels/conv/ck_conv_entries.hpp"

ROCM_SD_CK_CONV(bf16, ck::bhalf_t)
