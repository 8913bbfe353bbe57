// Where the calls of the UNet go that a request shares with others (step_batch.hpp), in place of those of the
// pipeline's own stage.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/text_stage.hpp"

namespace rocm_sd {

class SharedUnet {
 public:
  virtual ~SharedUnet() = default;
  // Before the first call. r and states must outlive the calls. sizes: SDXL's size conditions, for each
  // condition of the request.
  virtual void begin(const PreparedRequest& r, const TextStates& states,
                     std::vector<std::vector<float>> sizes) = 0;
  // UnetStage::step(), with what each condition, or each image of each condition, reads of the states.
  virtual Tensor call(const Tensor& scaled_input, double timestep, const std::vector<int64_t>& prompts) = 0;
};

}  // namespace rocm_sd
