// attention by Composable Kernel, f16.
#include "kernels/attention/ck_attention_entries.hpp"

ROCM_SD_CK_ATTENTION(f16, ck::half_t)
