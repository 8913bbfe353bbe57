// linear by instances of AMD's Composable Kernel: a candidate beside our own kernels, for tuning tables to
// name.
#pragma once

#include "kernels/gemm/linear_impl.hpp"

namespace rocm_sd {

// The row "ck". Its kernels are in the archives that were built with -DROCM_SD_WITH_CK=ON. It takes 16-bit
// products on AMD GPUs with no epilogue, with a bias, or with a bias and a residual.
Impl<LinearProblem> linear_ck_impl();

}  // namespace rocm_sd
