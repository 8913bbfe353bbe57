// Which jobs may share the calls of the UNet.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "server/job.hpp"

namespace rocm_sd::server {

// What a request does not say.
struct JoiningRules {
  std::string lora_mode = "merge";
  // Width and height of a model's images, by its name; 0: not known.
  std::function<std::pair<int, int>(const std::string& model)> default_size = {};
};

// What jobs must have in common: the model, the size, the LoRAs that are merged into the weights. Empty: the
// job is drawn alone (masks, ControlNets, several passes, ...). The worker's engine has the last word
// (StepBatch::refusal): who cannot join after all waits until the others have ended.
std::string joining_key(const JobRequest& request, const JoiningRules& rules);

}  // namespace rocm_sd::server
