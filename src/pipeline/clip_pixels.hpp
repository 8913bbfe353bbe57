// What an IP-Adapter's image encoder sees, and where its image acts.
#pragma once

#include <cstdint>
#include <vector>

#include "rocm_sd/image.hpp"

namespace rocm_sd {

// As transformers' CLIPImageProcessor: transparent pixels over white, the shorter side resized to `side`
// (Pillow's bicubic), the middle cut out, normalised by CLIP's means and deviations: [side,side,3].
std::vector<float> clip_pixels(const Image& image, int side);

// Where an image acts: Diffusers' IPAdapterMaskProcessor at width x height (Pillow's Lanczos, grey, 1 from
// 0.5 on, else 0): [height,width].
std::vector<float> image_mask(const Image& mask, int width, int height);

// The mask for a map of `pixels` pixels, as IPAdapterMaskProcessor.downsample makes it: torch's bicubic
// interpolation to a map of the mask's shape, cut or filled with zeros where that has other pixels.
std::vector<float> mask_factors(const std::vector<float>& mask, int width, int height, int64_t pixels);

}  // namespace rocm_sd
