// Where the calls of the UNet go of a request that may share them with others (step_batch.hpp). Until there
// are others, the pipeline's own stage computes them, as it does for a request by itself.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/text_stage.hpp"

namespace rocm_sd {

class SharedUnet {
 public:
  virtual ~SharedUnet() = default;
  // Whether another request has joined. Once it is so, it stays so for this request.
  virtual bool has_company() const = 0;
  // Before the first call. r and states must outlive the calls. sizes: SDXL's size conditions, for each
  // condition of the request.
  virtual void begin(const PreparedRequest& r, const TextStates& states,
                     std::vector<std::vector<float>> sizes) = 0;
  // UnetStage::step(), with what each condition, or each image of each condition, reads of the states; an
  // empty tensor where the request has no company: it calls its own stage.
  virtual Tensor call(const Tensor& scaled_input, double timestep, const std::vector<int64_t>& prompts) = 0;
};

inline bool has_company(const PreparedRequest& r) { return r.shared && r.shared->has_company(); }

}  // namespace rocm_sd
