// Loading a pipeline onto a device of the caller's choosing (Pipeline::load finds one by name).
#pragma once

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {

// options.device does not count. device must outlive the result. Throws what Pipeline::load throws.
Pipeline load_pipeline(const LoadOptions& options, Device& device, const Callbacks& callbacks = {});

}  // namespace rocm_sd
