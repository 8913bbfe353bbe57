// Admission: a request that cannot fit a device's memory, however much is saved, is refused before it waits.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "server/job.hpp"

namespace rocm_sd::server {

// What a step of a model takes on a worker's device, from plans of two sizes that the worker made when it had
// loaded the model.
struct StepMemory {
  uint64_t available = 0;       // bytes of the device, or of the budget; 0: not known
  double base = 0;              // bytes that a step takes at any size
  double pixel = 0;             // further bytes for each pixel of each image, with a negative prompt
  double default_guidance = 7;  // of requests that name no guidance
};

// The least bytes that the request takes while it samples: no saving (the VAE in bands, weights in host
// memory or streamed) makes a step smaller. 0 where that is not known: a start image decides the size, the
// image is tiled. default_size: width and height of the model's images.
uint64_t least_memory(const JobRequest& request, std::pair<int, int> default_size, const StepMemory& memory);

// Throws RequestError, 422 out_of_memory with what is needed and what there is, where the request fits none
// of the devices. Where one of them is not known (available 0) nothing is refused.
void admit(const JobRequest& request, std::pair<int, int> default_size, std::span<const StepMemory> devices);

}  // namespace rocm_sd::server
