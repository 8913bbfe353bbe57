// Loading a pipeline onto a device of the caller's choosing (Pipeline::load finds one by name).
#pragma once

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {

// options.device and options.devices do not count. device must outlive the result. ranks: null, or those with
// whom it draws: each computes its share of the conditions of every step (guidance_split.hpp), and rank 0
// alone decodes, so that the results of the others have no pictures. ranks must outlive the result.
// Throws what Pipeline::load throws.
Pipeline load_pipeline(const LoadOptions& options, Device& device, const Callbacks& callbacks = {},
                       Ranks* ranks = nullptr);

}  // namespace rocm_sd
