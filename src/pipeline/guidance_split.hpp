// Guidance split: the conditions of a step (negative prompt, prompt, ...) divided over ranks. Each rank runs
// the UNet on its own, all exchange their predictions, and every rank goes on with the same latents.
#pragma once

#include "pipeline/request.hpp"
#include "runtime/ranks.hpp"
#include "runtime/tensor.hpp"

namespace rocm_sd {

struct ConditionShare {
  int64_t first = 0, count = 1, all = 1;

  // rows [all*N,...] of all conditions -> [count*N,...], a view; of an empty tensor one.
  Tensor of(const Tensor& rows) const;
  bool has_last() const { return first + count == all; }
};

// The share of `rank` of `ranks`: shares of neighbours differ by one at most. Throws UsageError where there
// are fewer conditions than ranks.
ConditionShare share_conditions(int64_t conditions, int rank, int ranks);

}  // namespace rocm_sd
