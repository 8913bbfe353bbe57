// Latents at another size, as torch's interpolate() makes them: what A1111's latent upscalers are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rocm_sd {

enum class LatentResize { kNearest, kNearestExact, kBilinear, kBilinearSmooth, kBicubic, kBicubicSmooth };

// By A1111's names in any case: "Latent" (bilinear), "Latent (antialiased)", "Latent (bicubic antialiased)",
// "Latent (nearest-exact)", ...; nothing for other names.
std::optional<LatentResize> latent_resize_named(const std::string& name);

// values [planes,height,width] -> [planes,new_height,new_width]; align_corners=false; bicubic with a = -0.75,
// antialiased (Smooth) with a = -0.5, as in torch. Summed in double.
std::vector<float> resize_planes(const std::vector<float>& values, int64_t height, int64_t width,
                                 int64_t new_height, int64_t new_width, LatentResize mode);

}  // namespace rocm_sd
