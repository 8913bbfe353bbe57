// Loopback: image to image from the picture before, as A1111's script of this name does it.
#pragma once

#include <functional>

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {

using DrawOnce = std::function<GenerateResult(const GenerateRequest&)>;

// The denoising strength of loop `loop` of `loops`, 0-based: from `first` to the request's last one along the
// curve (aggressive: a quarter of a sine, lazy: of a cosine). Throws UsageError for a curve of another name.
double loop_strength(const Loopback& use, double first, int loop);

// The last loop's pictures. Each loop has the seed after that of the loop before, and as init images its
// pictures. The plan and the times are those of all. Throws UsageError without an init image, or for numbers
// out of range.
GenerateResult draw_loops(const GenerateRequest& request, const DrawOnce& draw);

}  // namespace rocm_sd
