// Reads Diffusers' scheduler_config.json: what the model was trained with and which sampler it suggests.
#pragma once

#include <string>
#include <string_view>

#include "schedulers/denoiser.hpp"
#include "schedulers/sampler.hpp"

namespace rocm_sd {

struct DiffusersSchedulerConfig {
  std::string class_name;  // "PNDMScheduler"
  NoiseScheduleArgs noise;
  Prediction prediction = Prediction::kEpsilon;
  SamplingRequest request;  // sampler, spacing and options as that class would run; steps stay the caller's
};

// text: the file's content; class_name replaces its _class_name where not empty (what
// Class.from_config(other.config) does); name: for messages. Throws FormatError for JSON that is not an
// object, values of a wrong type or out of range, and features that are not implemented (thresholding, flow
// sigmas, learned variance) with their name.
DiffusersSchedulerConfig parse_diffusers_scheduler(std::string_view text, std::string_view name,
                                                   std::string_view class_name = {});

}  // namespace rocm_sd
