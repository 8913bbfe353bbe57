// Soft inpainting: the mask's greys count at every step, and the picture's places that did not change come
// from the original. Written from the behaviour of A1111's extension of this name (extensions-builtin).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rocm_sd {

struct SoftSettings {
  // "Schedule bias", "preservation strength" and "transition contrast boost"; then of the composite "mask
  // influence", "difference threshold" and "difference contrast".
  double power = 1, scale = 0.5, detail = 4, influence = 0, threshold = 0.5, contrast = 2;
};

// Of GenerateRequest::mask_blend: "soft", or "soft:1:0.5:4:0:0.5:2", the last ones left out at will; nothing
// for other ways of blending. Throws UsageError for numbers out of the extension's ranges.
std::optional<SoftSettings> soft_settings(const std::string& mask_blend);

// mask [height,width] in 0..1 at the latents' size [latent_height,latent_width], in 8 bits by Pillow's
// bicubic filter; 1 is repainted.
std::vector<float> soft_latent_mask(const std::vector<float>& mask, int width, int height, int latent_width,
                                    int latent_height);

// What a step goes on with: original and current [N,h,w,4] mixed by mask [h,w] to the power of sigma^power *
// scale; the length of each pixel's vector is the mixture of theirs in the norm of order `detail`.
std::vector<float> soft_blend(const SoftSettings& settings, const std::vector<float>& original,
                              const std::vector<float>& current, const std::vector<float>& mask,
                              double sigma);

// How much of each pixel of the finished picture counts, [height,width] in 0..1: by how far the latents of
// one image, [latent_height,latent_width,4], went from the original's.
std::vector<float> soft_overlay(const SoftSettings& settings, const std::vector<float>& original,
                                const std::vector<float>& current, const std::vector<float>& mask,
                                int latent_width, int latent_height, int width, int height);

}  // namespace rocm_sd
