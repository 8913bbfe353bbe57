// The problems of the C interface as those of the ops (kernels/op_problem.hpp).
#pragma once

#include "kernels/op_problem.hpp"
#include "rocm_sd/kernels.h"

namespace rocm_sd::library {

using Problem = OpProblem;

// Each throws ShapeError for extents that no device would take, UsageError for what this library does not.
Problem attention_problem(const rocm_sd_kernels_attention& p);
Problem linear_problem(const rocm_sd_kernels_linear& p);
Problem conv2d_problem(const rocm_sd_kernels_conv2d& p);
Problem group_norm_problem(const rocm_sd_kernels_group_norm& p);
Problem layer_norm_problem(const rocm_sd_kernels_layer_norm& p);
Problem geglu_problem(const rocm_sd_kernels_geglu& p);

}  // namespace rocm_sd::library
