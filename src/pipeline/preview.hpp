// A look at latents before they are finished, without a decoder.
#pragma once

#include <vector>

#include "rocm_sd/pipeline.hpp"
#include "weights/component.hpp"

namespace rocm_sd {

// latents [height,width,4] as the sampler has them -> a picture of their size by a matrix over each latent,
// whose numbers were fitted to the model's kind and published (ComfyUI's latent formats).
Image project_latents(const float* latents, int height, int width, ModelKind kind);

// Throws UsageError for an unknown mode or an interval out of range.
void check_preview(const PreviewUse& preview);

}  // namespace rocm_sd
