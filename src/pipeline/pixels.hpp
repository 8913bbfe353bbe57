// Pictures as numbers: to and from tensors, masks for latents, and putting the unmasked original back.
#pragma once

#include <vector>

#include "rocm_sd/image.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// Transparent pixels over white, as A1111 lays them (img2img_background_color); resized by Lanczos to width x
// height where it differs; values in -1..1, [height,width,3].
std::vector<float> image_to_floats(const Image& image, int width, int height);
// The image's pixels, transparent ones over white, [height,width,3].
std::vector<uint8_t> opaque_rgb(const Image& image);
// values [height,width] at another size as torch's bicubic interpolation makes it (a = -0.75, no antialias).
std::vector<float> torch_bicubic(const std::vector<float>& values, int width, int height, int new_width,
                                 int new_height);
Image floats_to_image(const std::vector<float>& pixels, int width, int height);  // from -1..1; half to even

// One value a pixel, 0 keeps and 1 repaints, [height,width]: the mask's grey, or where it has transparency 1
// - alpha. Blurred by a Gaussian of `blur` pixels (standard deviation; borders repeat), resized by box means
// or bilinearly. invert: 1 keeps.
std::vector<float> mask_to_floats(const Image& mask, int width, int height, int blur, bool invert = false);

// How a mask comes to the latents' size, each of which it keeps or repaints whole.
enum class MaskDownscale {
  kArea,     // box means over factor x factor pixels, rounded (A1111)
  kNearest,  // the first pixel of each factor x factor, from 0.5 on repainted (Diffusers, LDM)
};
// [height/factor,width/factor] of 0 and 1
std::vector<float> latent_mask(const std::vector<float>& mask, int width, int height, int factor,
                               MaskDownscale how);

// A depth map for the UNet at width x height: the picture's grey, resized as torch's bicubic interpolation
// does (a = -0.75, no antialias), stretched to -1..1. One value for all of a flat map: 0.
std::vector<float> depth_to_floats(const Image& depth, int width, int height);

// picture * mask + original * (1 - mask), pixel by pixel.
Image composite(const Image& picture, const std::vector<float>& original, const std::vector<float>& mask);

}  // namespace rocm_sd
