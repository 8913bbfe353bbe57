// attention by the GPU vendors' libraries: a candidate beside our own kernels, for tuning tables to name.
#pragma once

#include "kernels/attention/attention_impl.hpp"
#include "kernels/select.hpp"

namespace rocm_sd {

// The row "cudnn", whose configurations are the library's engines by its own ranking: "0", "1" ... It takes
// f16 and bf16 without a mask.
Impl<AttentionProblem> attention_cudnn_impl();

}  // namespace rocm_sd
