// conv2d as a product of gathered rows: shared by the implementations that stand on the host's own GEMM.
#pragma once

#include "kernels/conv/conv2d_impl.hpp"
#include "kernels/gemm/tiled.hpp"

namespace rocm_sd {

// Everything of the product but its weights.
tiled::Product conv2d_gathered(const ConvProblem& p);

}  // namespace rocm_sd
