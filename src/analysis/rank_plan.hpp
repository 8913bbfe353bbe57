// The ranks of a picture that several GPUs draw together, planned one by one without any of them: what each
// computes, and every message that the engine would send. The exchanges within the networks come from the
// code that makes them (ExchangeRecord); those around them follow src/pipeline.
#pragma once

#include <vector>

#include "analysis/planned_model.hpp"
#include "runtime/ranks.hpp"

namespace rocm_sd {

// Exchange::sent is by rank of the whole group; all ranks have the same number of exchanges, in one order.
struct RankPlan {
  int64_t rows = 0;                  // of the latents that it has in the UNet
  std::vector<PlannedStage> stages;  // as plan_model
  std::vector<Exchange> step;        // of one call of the UNet, with the gathering of the predictions
  std::vector<Exchange> decode;      // of one picture, with the gathering of its rows
  std::vector<Exchange> once;        // what the ranks agree about, and the end

  uint64_t bytes(int steps, int64_t pictures) const;  // sent, of `pictures` drawn as one batch
  uint64_t messages(int steps, int64_t pictures) const;
};

// ranks: that draw one picture together, two with Division::kConditions. Throws UsageError where the picture
// cannot be divided so, and as plan_model.
std::vector<RankPlan> plan_ranks(Device& device, const Device& products, const KnownModel& model,
                                 const PictureShape& shape, int steps, DType dtype, Division division,
                                 int ranks);

}  // namespace rocm_sd
