#include "kernels/ops.hpp"

namespace rocm_sd {

std::span<const AnyOp> all_ops() {
#define ROCM_SD_OP_ENTRY(name) name##_op(),
  static const AnyOp kOps[] = {
#include "kernels/op_list.inc"
  };
#undef ROCM_SD_OP_ENTRY
  return kOps;
}

}  // namespace rocm_sd
