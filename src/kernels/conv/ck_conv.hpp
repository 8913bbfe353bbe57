// conv2d by instances of AMD's Composable Kernel: a candidate beside our own kernels, for tuning tables to
// name.
#pragma once

#include "kernels/conv/conv2d_impl.hpp"

namespace rocm_sd {

// The row "ck". Its kernels are in the archives that were built with -DROCM_SD_WITH_CK=ON. It takes
// 16-bit types on AMD GPUs with a bias, a residual behind it or not, and no activation, SiLU or ReLU.
Impl<ConvProblem> conv2d_ck_impl();

}  // namespace rocm_sd
