// Pictures at other sizes, by filters and by networks, as A1111's resize modes make them.
#pragma once

#include <optional>
#include <string>

#include "pipeline/image_upscaler.hpp"

namespace rocm_sd {

enum class PictureFilter { kNearest, kBicubic, kLanczos };
// "lanczos", "bicubic", "nearest" in any case; nothing for other names.
std::optional<PictureFilter> filter_named(const std::string& name);

struct PictureSize {
  int width = 0, height = 0;
  friend bool operator==(const PictureSize&, const PictureSize&) = default;
};
// What factor, or width and height, make of an image's size; 0 is absent. Throws UsageError for a size below
// 1 or above what a picture may have.
PictureSize target_size(const Image& image, double factor, int width, int height);

// Colours and alpha at another size, to the bit as Pillow's resize() makes them.
Image resized(const Image& image, const PictureSize& size, PictureFilter filter);

// Passes of the network, at most three, until neither side is short of `size`; then Lanczos.
Image enlarged(ImageUpscaler& network, const Image& image, const PictureSize& size, const UpscaleTiles& tiles,
               const RunWatch& watch, const ImageUpscaler::OnWindow& step);

}  // namespace rocm_sd
