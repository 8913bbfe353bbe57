// linear by the GPU vendors' libraries: candidates beside our own kernels, for tuning tables to name.
#pragma once

#include "kernels/gemm/linear_impl.hpp"

namespace rocm_sd {

// The rows "cublaslt", "hipblaslt" and "rocblas", whose configurations are the library's algorithms by its
// own ranking: "0", "1" ... The library adds the bias where it adds it without rounding it, and the residual;
// everything else of the epilogue is done by our kernel, from sums stored as float.
std::vector<Impl<LinearProblem>> linear_vendor_impls();

}  // namespace rocm_sd
