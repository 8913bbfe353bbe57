// SDXL's size conditions (Podell et al., "SDXL", 2023, section 2.2).
#pragma once

#include <vector>

#include "pipeline/request.hpp"

namespace rocm_sd {

// The numbers of each condition of the UNet's batch; those of the negative prompt by the rules of Diffusers'
// pipelines.
std::vector<std::vector<float>> size_conditions(const ResolvedRequest& r, bool refiner);

}  // namespace rocm_sd
