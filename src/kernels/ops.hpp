// The entries of the ops that tools know, as op_list.inc names them.
#pragma once

#include "kernels/op_problem.hpp"

namespace rocm_sd {

#define ROCM_SD_OP_ENTRY(name) AnyOp name##_op();
#include "kernels/op_list.inc"
#undef ROCM_SD_OP_ENTRY

}  // namespace rocm_sd
