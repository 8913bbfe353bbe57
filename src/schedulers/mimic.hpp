// Guidance of a large scale with the values of a smaller one ("mimic scale" of the Dynamic Thresholding
// extensions for A1111 and ComfyUI, in their default mode: from the mean, absolute deviations, each channel
// by itself).
#pragma once

#include <span>
#include <vector>

namespace rocm_sd {

struct MimicArgs {
  double scale = 7;        // of guidance
  double mimic_scale = 0;  // whose values the result has; 0: off
  double percentile = 1;   // of the deviations, 0..1: what lies beyond it is clamped
};

// Clean latents of one image, [pixels,channels] each, predicted with the negative prompt and with the prompt.
std::vector<float> mimicked(std::span<const float> negative, std::span<const float> positive, size_t channels,
                            const MimicArgs& args);

// torch.quantile's, linear between neighbours; sorts the values.
double quantile(std::vector<double>& values, double ratio);

}  // namespace rocm_sd
