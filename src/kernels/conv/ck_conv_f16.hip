// conv2d by Composable Kernel, f16.
#include "kernels/conv/ck_conv_entries.hpp"

ROCM_SD_CK_CONV(f16, ck::half_t)
