#include "pipeline/scribble.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace rocm_sd {
namespace {

int64_t mirrored(int64_t at, int64_t size) {
  while (at < 0 || at >= size) {
    if (size == 1) return 0;
    at = at < 0 ? -at : 2 * (size - 1) - at;
  }
  return at;
}

struct Plane {
  int64_t width, height;
  std::vector<double> values;
  double& at(int64_t y, int64_t x) { return values[static_cast<size_t>(y * width + x)]; }
  double at(int64_t y, int64_t x) const { return values[static_cast<size_t>(y * width + x)]; }
  double beside(int64_t y, int64_t x) const { return at(mirrored(y, height), mirrored(x, width)); }
};

Plane channel_of(const Image& image, size_t channel) {
  Plane out{image.width, image.height, {}};
  for (size_t i = channel; i < image.rgb.size(); i += 3) out.values.push_back(image.rgb[i]);
  return out;
}

// reach: taps beside the middle, as OpenCV chooses them.
Plane blurred(const Plane& plane, double deviation, int64_t reach) {
  std::vector<double> taps;
  double sum = 0;
  for (int64_t i = -reach; i <= reach; ++i) {
    taps.push_back(std::exp(-0.5 * static_cast<double>(i * i) / (deviation * deviation)));
    sum += taps.back();
  }
  Plane across = plane, out = plane;
  const auto tap = [&](int64_t i) { return taps[static_cast<size_t>(i + reach)] / sum; };
  for (int64_t y = 0; y < plane.height; ++y)
    for (int64_t x = 0; x < plane.width; ++x) {
      double value = 0;
      for (int64_t i = -reach; i <= reach; ++i) value += tap(i) * plane.beside(y, x + i);
      across.at(y, x) = value;
    }
  for (int64_t y = 0; y < plane.height; ++y)
    for (int64_t x = 0; x < plane.width; ++x) {
      double value = 0;
      for (int64_t i = -reach; i <= reach; ++i) value += tap(i) * across.beside(y + i, x);
      out.at(y, x) = value;
    }
  return out;
}

// Of float values OpenCV takes 4 deviations, of 8 bits 3.
Plane blurred_floats(const Plane& plane, double deviation) {
  return blurred(plane, deviation, std::llround(4 * deviation * 2 + 1) / 2);
}

Image black_and_white(const Image& like, const std::function<bool(size_t pixel)>& is_white) {
  Image out{like.width, like.height, std::vector<uint8_t>(like.rgb.size()), {}};
  for (size_t i = 0; i < out.rgb.size(); ++i) out.rgb[i] = is_white(i / 3) ? 255 : 0;
  return out;
}

}  // namespace

Image binarised(const Image& image, double threshold) {
  Image out = image;
  for (uint8_t& value : out.rgb) value = value > std::floor(threshold) ? 255 : 0;
  return out;
}

Image scribble(const Image& image, double threshold) {
  return black_and_white(image, [&](size_t i) {
    const uint8_t* p = &image.rgb[3 * i];
    return std::min({p[0], p[1], p[2]}) < threshold;
  });
}

Image scribble_of_photo(const Image& image, double threshold) {
  std::vector<double> darker(image.rgb.size() / 3, HUGE_VAL);  // the least channel's, than its surroundings
  for (size_t c = 0; c < 3; ++c) {
    const Plane plane = channel_of(image, c);
    const Plane near = blurred_floats(plane, 0.5), far = blurred_floats(plane, 5);
    for (size_t i = 0; i < darker.size(); ++i)
      darker[i] = std::min(darker[i], far.values[i] - near.values[i]);
  }
  return black_and_white(image, [&](size_t i) {
    const double rest = std::floor(std::clamp(255 - darker[i], 0.0, 255.0));  // in 8 bits
    return 2 * (255 - rest) > threshold;
  });
}

Image scribble_of_edges(const Image& map) {
  const Plane soft = blurred_floats(channel_of(map, 0), 3);
  constexpr std::array<std::pair<int64_t, int64_t>, 4> kDirections = {{{0, 1}, {1, 0}, {1, 1}, {-1, 1}}};
  Plane ridges{soft.width, soft.height, std::vector<double>(soft.values.size(), 0.0)};
  for (int64_t y = 0; y < soft.height; ++y)
    for (int64_t x = 0; x < soft.width; ++x)
      for (const auto& [down, right] : kDirections) {
        // A ridge is not below its neighbours on either side; what lies outside of the map is none.
        bool is_ridge = soft.at(y, x) > 127;
        for (const int64_t side : {-1, 1}) {
          const int64_t v = y + side * down, h = x + side * right;
          if (v >= 0 && v < soft.height && h >= 0 && h < soft.width && soft.at(v, h) > soft.at(y, x))
            is_ridge = false;
        }
        if (is_ridge) ridges.at(y, x) = 255;
      }
  const Plane lines = blurred(ridges, 3, 9);
  return black_and_white(map, [&](size_t i) { return std::round(lines.values[i]) > 4; });
}

}  // namespace rocm_sd
