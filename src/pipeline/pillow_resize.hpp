// Resizing as Pillow does it, to the bit: what image encoders were trained on and Diffusers' masks come from.
#pragma once

#include <cstdint>
#include <vector>

namespace rocm_sd {

enum class PillowFilter { kBicubic, kLanczos };

// pixels [height,width,channels] -> [new_height,new_width,channels]. Separable, columns first, each pass
// rounded to 8 bits; weights in fixed point of 22 bits (Pillow's Resample.c).
std::vector<uint8_t> pillow_resize(const std::vector<uint8_t>& pixels, int width, int height, int channels,
                                   int new_width, int new_height, PillowFilter filter);

}  // namespace rocm_sd
