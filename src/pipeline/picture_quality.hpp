// How far a picture is from another one of the same size: PSNR, SSIM and FLIP, as
// benchmarks/picture_quality.py has them.
#pragma once

#include "rocm_sd/image.hpp"

namespace rocm_sd {

struct PictureQuality {
  double psnr = 0;  // dB, over all channels; infinite where the pictures are equal
  // Of luma, 1: no difference (Wang, Bovik, Sheikh, Simoncelli, "Image Quality Assessment", 2004: a Gaussian
  // window of 11 with deviation 1.5, windows inside the picture only). NaN below 11 x 11 pixels.
  double ssim = 0;
  // Mean over the pixels, 0: no difference, 1: the largest (Andersson, Nilsson, Akenine-Moeller, Oskarsson,
  // Astroem, Fairchild, "FLIP: A Difference Evaluator for Alternating Images", 2020, at 67 pixels a degree).
  double flip = 0;
};

// Throws UsageError where the sizes differ or a picture is empty.
PictureQuality picture_quality(const Image& reference, const Image& picture);

}  // namespace rocm_sd
