// Weights that were laid out once and are found again by a number, so that an operator's later calls need not
// do it anew. Python owns the numbers (rocm_sd_ops.packs); 0 stands for none.
#pragma once

#include "kernels/weight.hpp"
#include "pytorch_integration/torch_tensor.hpp"

namespace rocm_sd::torch_ops {

int64_t new_pack();
void drop_pack(int64_t id);  // an unknown id is no error: Python may ask late

// The weight with its layouts. A pack made of another tensor, or of other values (on the host 64 elements are
// compared; on a GPU nobody looks, see rocm_sd_ops.refresh), is made anew. id 0 or unknown: for this call.
Weight packed_weight(int64_t id, const AtTensor& weight);
bool is_live_pack(int64_t id);

}  // namespace rocm_sd::torch_ops
