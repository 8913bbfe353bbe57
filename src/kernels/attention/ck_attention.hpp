// attention by instances of AMD's Composable Kernel: a candidate beside our own kernels, for tuning tables to
// name.
#pragma once

#include "kernels/attention/attention_impl.hpp"
#include "kernels/select.hpp"

namespace rocm_sd {

// The row "ck". Its kernels are in the archives that were built with -DROCM_SD_WITH_CK=ON. It takes
// 16-bit types without a mask on AMD GPUs, causal ones on CDNA.
Impl<AttentionProblem> attention_ck_impl();

}  // namespace rocm_sd
