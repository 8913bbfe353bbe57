// A loop that the compiler unrolls, for steps that it must know: those that name registers, or stages.
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

// step(0), ..., step(kCount - 1), each known to the compiler.
template <int kCount, class Step>
ROCM_SD_DEVICE void unrolled(const Step& step) {
  ROCM_SD_UNROLL
  for (int n = 0; n < kCount; ++n) step(n);
}

}  // namespace rocm_sd
