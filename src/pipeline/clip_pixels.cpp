#include "pipeline/clip_pixels.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "pipeline/pillow_resize.hpp"
#include "pipeline/pixels.hpp"

namespace rocm_sd {

std::vector<float> clip_pixels(const Image& image, int side) {
  require<UsageError>(image.width > 0 && image.height > 0, "ip-image: has no pixels");
  constexpr std::array<float, 3> kMean = {0.48145466f, 0.4578275f, 0.40821073f},
                                 kDeviation = {0.26862954f, 0.26130258f, 0.27577711f};
  const int shorter = std::min(image.width, image.height);
  const auto scaled = [&](int length) {
    return length == shorter ? side : static_cast<int>(static_cast<int64_t>(side) * length / shorter);
  };
  const int width = scaled(image.width), height = scaled(image.height);
  const std::vector<uint8_t> whole =
      pillow_resize(opaque_rgb(image), image.width, image.height, 3, width, height, PillowFilter::kBicubic);
  const int left = (width - side) / 2, top = (height - side) / 2;
  std::vector<float> out;
  out.reserve(static_cast<size_t>(side) * static_cast<size_t>(side) * 3);
  for (int y = 0; y < side; ++y)
    for (int x = 0; x < side; ++x)
      for (size_t c = 0; c < 3; ++c) {
        const size_t at =
            3 * (static_cast<size_t>(y + top) * static_cast<size_t>(width) + static_cast<size_t>(x + left)) +
            c;
        const auto value = static_cast<float>(whole[at] * (1.0 / 255.0));
        out.push_back((value - kMean[c]) / kDeviation[c]);
      }
  return out;
}

std::vector<float> image_mask(const Image& mask, int width, int height) {
  const std::vector<uint8_t> rgb =
      pillow_resize(opaque_rgb(mask), mask.width, mask.height, 3, width, height, PillowFilter::kLanczos);
  std::vector<float> out;
  for (size_t i = 0; i < rgb.size(); i += 3) {
    // Pillow's grey: ITU-R BT.601 in 16 bits.
    const unsigned grey = (rgb[i] * 19595u + rgb[i + 1] * 38470u + rgb[i + 2] * 7471u + 0x8000u) >> 16;
    out.push_back(static_cast<float>(grey) / 255.0f >= 0.5f ? 1.0f : 0.0f);
  }
  return out;
}

std::vector<float> mask_factors(const std::vector<float>& mask, int width, int height, int64_t pixels) {
  const double ratio = static_cast<double>(width) / height;
  int64_t rows = std::max<int64_t>(static_cast<int64_t>(std::sqrt(static_cast<double>(pixels) / ratio)), 1);
  if (pixels % rows != 0) ++rows;
  const int64_t columns = std::max<int64_t>(pixels / rows, 1);
  std::vector<float> out =
      torch_bicubic(mask, width, height, static_cast<int>(columns), static_cast<int>(rows));
  out.resize(static_cast<size_t>(pixels), 0.0f);
  return out;
}

}  // namespace rocm_sd
