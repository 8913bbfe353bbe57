// FreeU (Si et al., "FreeU: Free Lunch in Diffusion U-Net", 2023): in the first two up blocks the first half
// of the map's channels is amplified, and the skips' lowest frequencies are weakened.
#pragma once

#include <array>
#include <vector>

#include "runtime/exec.hpp"

namespace rocm_sd {

// Of one up block. Diffusers' filter scales the frequencies -1 and 0 of each axis, of which the real part
// counts: x + (skip - 1) * sum of b * mean(b x) over the functions b = 1, cos and sin of 2 pi h / H, of
// 2 pi w / W and of their sum.
struct FreeULevel {
  float backbone = 1;  // factor of the map's first half of channels
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
  std::array<FreeULevel, 2> levels;
};

// Values of one level on a device. skip: the factor of the low frequencies.
FreeULevel make_freeu_level(Device& device, int64_t images, int64_t height, int64_t width, double backbone,
                            double skip);

// map [N,H,W,C] and the skip [N,H,W,C2] beside it, in place of which the results go on.
void apply_freeu(Exec& ex, const FreeULevel& level, Tensor& map, Tensor& skip);

}  // namespace rocm_sd
