// conv2d by the GPU vendors' libraries: candidates beside our own kernels, for tuning tables to name.
#pragma once

#include "kernels/conv/conv2d_impl.hpp"

namespace rocm_sd {

// The rows "cudnn", whose configurations are the library's engines by its own ranking ("0", "1" ...), and
// "miopen", whose configurations are the identifiers of MIOpen's solutions, and "find": the best that its
// search finds, which MIOpen keeps for later processes. A second input is joined to the first and a doubled
// image is made, before. cuDNN does the epilogue where it can, else stores its sums as float for our kernel.
// MIOpen stores sums in x's type only: there the sum is rounded once more, before the epilogue.
std::vector<Impl<ConvProblem>> conv2d_vendor_impls();

}  // namespace rocm_sd
