// The degraded latents of self-attention guidance (Hong et al., "Improving Sample Quality of Diffusion Models
// Using Self-Attention Guidance", 2022, section 4), as Diffusers' StableDiffusionSAGPipeline makes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rocm_sd {

// The sides of an attention map and of the latents of one image.
struct DegradedShape {
  int64_t map_height = 1, map_width = 1;
  int64_t height = 1, width = 1, channels = 4;
};

// clean [height,width,channels], blurred (Gaussian of 9 values each way, deviation 1, borders mirrored) where
// the map, resized to the latents (nearest), has more than 1: attention_sums [map_height,map_width] is what
// each pixel gets from all others, 1 on average. Throws UsageError where a side is below 5 latents, which the
// blur cannot mirror.
std::vector<float> degraded_latents(std::span<const float> clean, std::span<const float> attention_sums,
                                    const DegradedShape& shape);

}  // namespace rocm_sd
