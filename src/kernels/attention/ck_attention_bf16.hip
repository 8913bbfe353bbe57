// attention by Composable Kernel, bf16.
#include "kernels/attention/ck_attention_entries.hpp"

ROCM_SD_CK_ATTENTION(bf16, ck::bhalf_t)
