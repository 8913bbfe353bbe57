// What models that were distilled for few steps are drawn with, and by what they are known.
#pragma once

#include <string_view>

#include "pipeline/components.hpp"
#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {

// By the weights (LCM's guidance embedding), the scheduler's class in the model's configuration, or the
// file's name. Empty (`reason`) for other models. own_sampling: the model's configuration names its sampler,
// which stays.
SamplingProposal propose_sampling(const UNetConfig& unet, std::string_view scheduler_class,
                                  std::string_view name, bool own_sampling);

// "its UNet is SSD-1B's: SDXL without ..."; empty where the UNet is not one of the smaller ones that are
// guided as their originals.
std::string describe_smaller_unet(const UNetConfig& unet, ModelKind kind);

}  // namespace rocm_sd
