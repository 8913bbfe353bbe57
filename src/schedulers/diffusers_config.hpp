// Reads Diffusers' scheduler_config.json: what the model was trained with and which sampler it suggests.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "schedulers/denoiser.hpp"
#include "schedulers/sampler.hpp"

namespace rocm_sd {

// Stable Diffusion 1's and 2's pipelines set steps_offset to 1 and clip_sample to false, whatever the file
// says; SDXL's and instruct-pix2pix's take it as it is.
enum class DiffusersPipeline { kPlain, kStableDiffusion };

struct DiffusersSchedulerConfig {
  std::string class_name;  // "PNDMScheduler"
  NoiseScheduleArgs noise;
  Prediction prediction = Prediction::kEpsilon;
  double sigma_data = 0;    // more than 0: EDM's preconditioning
  SamplingRequest request;  // sampler, spacing and options as that class would run; steps stay the caller's
  // Not empty: a sentence that says why `request` is not what the file asks for. The model can still be used
  // with a sampler and a schedule of the caller's.
  std::string refusal;
};

// config: the file's content; class_name replaces its _class_name where not empty (what
// Class.from_config(other.config) does); name: for messages. Fields that the class does not have are ignored,
// as Diffusers does; each that it has is used, or refused by name. Throws FormatError for JSON that is not an
// object, and for training values (betas, prediction type) of a wrong type or out of range.
DiffusersSchedulerConfig read_diffusers_scheduler(const nlohmann::json& config, std::string_view name,
                                                  DiffusersPipeline pipeline = DiffusersPipeline::kPlain,
                                                  std::string_view class_name = {});

// The same from text, but throws FormatError with the refusal where there is one.
DiffusersSchedulerConfig parse_diffusers_scheduler(std::string_view text, std::string_view name,
                                                   std::string_view class_name = {});

}  // namespace rocm_sd
