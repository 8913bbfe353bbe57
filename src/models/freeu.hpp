// FreeU (Si et al., "FreeU: Free Lunch in Diffusion U-Net", 2023): in some up blocks the first half of the
// map's channels is amplified, and the skips' lowest frequencies are weakened. The first version (Diffusers'
// enable_freeu) acts in the first two up blocks, on all pixels alike; the second one (the authors' public
// repository, ComfyUI's FreeU_V2) on maps of certain widths, on each pixel by its mean over the channels.
#pragma once

#include <vector>

#include "models/configs.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// Of the maps of one up block. Diffusers' filter scales the frequencies -1 and 0 of each axis, of which the
// real part counts: x + (skip - 1) * sum of b * mean(b x) over the functions b = 1, cos and sin of 2 pi h /
// H, of 2 pi w / W and of their sum.
struct FreeULevel {
  float backbone = 1;    // factor of the map's first half of channels
  bool by_mean = false;  // the whole of it where a pixel's mean over the channels is the image's largest,
                         // none where it is the smallest
  int64_t channels = 0;  // of the maps that it acts on; 0: any
  // Of each function b: its values for all images' pixels, and those times (skip - 1); [N*H*W] f32. The first
  // function, 1, has none of the former.
  std::vector<Tensor> functions, scaled;

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const std::vector<Tensor>* list : {&functions, &scaled})
      for (const Tensor& t : *list) sum += t ? t.bytes() : 0;
    return sum;
  }
};
struct FreeU {
  std::vector<std::vector<FreeULevel>> blocks;  // of each up block; those behind the last have none
};

// What the up blocks of a UNet get: their first two, or, in the second version, those whose maps are four or
// two times as wide as the first down block's. values: b1, b2, s1, s2. height, width: of the latents.
FreeU make_freeu(Device& device, const UNetConfig& config, int64_t images, int64_t height, int64_t width,
                 const std::vector<double>& values, bool second);

// Values of one level on a device. skip: the factor of the low frequencies.
FreeULevel make_freeu_level(Device& device, int64_t images, int64_t height, int64_t width, double backbone,
                            double skip);

// map [N,H,W,C] and the skip [N,H,W,C2] beside it, in place of which the results go on.
void apply_freeu(Exec& ex, const FreeULevel& level, Tensor& map, Tensor& skip);

}  // namespace rocm_sd
