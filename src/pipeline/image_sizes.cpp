#include "pipeline/image_sizes.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.hpp"
#include "pipeline/pillow_resize.hpp"

namespace rocm_sd {
namespace {

constexpr int kMaxPasses = 3;  // as A1111's
constexpr int kMaxSide = 32768;
constexpr int64_t kMaxPixels = int64_t{1} << 28;

std::vector<uint8_t> nearest(const std::vector<uint8_t>& from, const PictureSize& old, int channels,
                             const PictureSize& size) {
  std::vector<uint8_t> out;
  out.reserve(static_cast<size_t>(size.width) * static_cast<size_t>(size.height) *
              static_cast<size_t>(channels));
  const auto place = [](int i, int length, int old_length) {
    return std::min(static_cast<int>((i + 0.5) * old_length / length), old_length - 1);
  };
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x) {
      const auto row = static_cast<size_t>(place(y, size.height, old.height)),
                 col = static_cast<size_t>(place(x, size.width, old.width));
      const uint8_t* pixel =
          &from[(row * static_cast<size_t>(old.width) + col) * static_cast<size_t>(channels)];
      out.insert(out.end(), pixel, pixel + channels);
    }
  return out;
}

std::vector<uint8_t> resized_plane(const std::vector<uint8_t>& from, const PictureSize& old, int channels,
                                   const PictureSize& size, PictureFilter filter) {
  if (filter == PictureFilter::kNearest) return nearest(from, old, channels, size);
  return pillow_resize(from, old.width, old.height, channels, size.width, size.height,
                       filter == PictureFilter::kBicubic ? PillowFilter::kBicubic : PillowFilter::kLanczos);
}

}  // namespace

std::optional<PictureFilter> filter_named(const std::string& name) {
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "lanczos") return PictureFilter::kLanczos;
  if (lower == "bicubic") return PictureFilter::kBicubic;
  if (lower == "nearest") return PictureFilter::kNearest;
  return std::nullopt;
}

PictureSize target_size(const Image& image, double factor, int width, int height) {
  require<UsageError>(image.width > 0 && image.height > 0, "upscale: expected a picture with pixels, got ",
                      image.width, " x ", image.height);
  const auto scaled = [](int side, double by) {
    return std::min(std::floor(side * by + 1e-6), static_cast<double>(kMaxSide) + 1);
  };
  const auto follow = [&](int known, int own, int other) {
    return std::max(scaled(other, static_cast<double>(known) / own), 1.0);
  };
  double w = width, h = height;
  if (width == 0 && height == 0) {
    w = scaled(image.width, factor);
    h = scaled(image.height, factor);
  } else if (width == 0) {
    w = follow(height, image.height, image.width);
  } else if (height == 0) {
    h = follow(width, image.width, image.height);
  }
  require<UsageError>(w >= 1 && h >= 1 && w <= kMaxSide && h <= kMaxSide && w * h <= kMaxPixels,
                      "upscale: a picture of ", image.width, " x ", image.height, " would become ", w, " x ",
                      h, ", expected 1 to ", kMaxSide, " on a side and at most ", kMaxPixels, " pixels");
  return {static_cast<int>(w), static_cast<int>(h)};
}

Image resized(const Image& image, const PictureSize& size, PictureFilter filter) {
  const PictureSize old{image.width, image.height};
  if (size == old) return image;
  Image out{size.width, size.height, resized_plane(image.rgb, old, 3, size, filter), {}};
  if (!image.alpha.empty()) out.alpha = resized_plane(image.alpha, old, 1, size, filter);
  return out;
}

Image enlarged(ImageUpscaler& network, const Image& image, const PictureSize& size, const UpscaleTiles& tiles,
               const RunWatch& watch, const ImageUpscaler::OnWindow& step) {
  Image out = image;
  const bool enlarges = network.config().factor() > 1;
  for (int i = 0; i < (enlarges ? kMaxPasses : 1); ++i) {
    if (enlarges && out.width >= size.width && out.height >= size.height) break;
    out = network.pass(out, tiles, watch, step);
  }
  if (out.width != size.width || out.height != size.height) out = resized(out, size, PictureFilter::kLanczos);
  if (image.alpha.empty()) return out;
  out.alpha = resized_plane(image.alpha, {image.width, image.height}, 1, size, PictureFilter::kLanczos);
  return out;
}

}  // namespace rocm_sd
