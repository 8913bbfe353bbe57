#include "schedulers/self_attention_guidance.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kReach = 4;  // of the blur to either side

std::array<double, 2 * kReach + 1> gaussian() {
  std::array<double, 2 * kReach + 1> out{};
  double sum = 0;
  for (int64_t i = -kReach; i <= kReach; ++i) {
    const auto x = static_cast<double>(i);
    sum += out[static_cast<size_t>(i + kReach)] = std::exp(-0.5 * x * x);
  }
  for (double& v : out) v /= sum;
  return out;
}

// The border itself is not repeated: -1 is 1.
int64_t mirrored(int64_t at, int64_t side) {
  if (at < 0) return -at;
  return at < side ? at : 2 * (side - 1) - at;
}

// Along one axis: `outer` times `side` values that lie `stride` apart.
std::vector<double> blurred(const std::vector<double>& x, int64_t outer, int64_t side, int64_t stride) {
  static const auto kernel = gaussian();
  std::vector<double> out(x.size());
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t at = 0; at < side; ++at)
      for (int64_t s = 0; s < stride; ++s) {
        double sum = 0;
        for (int64_t i = -kReach; i <= kReach; ++i)
          sum += kernel[static_cast<size_t>(i + kReach)] *
                 x[static_cast<size_t>((o * side + mirrored(at + i, side)) * stride + s)];
        out[static_cast<size_t>((o * side + at) * stride + s)] = sum;
      }
  return out;
}

}  // namespace

std::vector<float> degraded_latents(std::span<const float> clean, std::span<const float> attention_sums,
                                    const DegradedShape& shape) {
  require<UsageError>(shape.height > kReach && shape.width > kReach,
                      "sag-scale: expected a picture of 40 pixels a side or more, got latents of ",
                      shape.width, " x ", shape.height);
  std::vector<double> smooth(clean.begin(), clean.end());
  smooth = blurred(smooth, 1, shape.height, shape.width * shape.channels);
  smooth = blurred(smooth, shape.height, shape.width, shape.channels);
  std::vector<float> out(clean.begin(), clean.end());
  // torch's nearest interpolation counts in float.
  const auto nearest = [](int64_t at, int64_t from, int64_t to) {
    const float scale = static_cast<float>(from) / static_cast<float>(to);
    return std::min(static_cast<int64_t>(std::floor(static_cast<float>(at) * scale)), from - 1);
  };
  for (int64_t y = 0; y < shape.height; ++y)
    for (int64_t x = 0; x < shape.width; ++x) {
      const int64_t row = nearest(y, shape.map_height, shape.height);
      const int64_t column = nearest(x, shape.map_width, shape.width);
      if (!(attention_sums[static_cast<size_t>(row * shape.map_width + column)] > 1.0f)) continue;
      for (int64_t c = 0; c < shape.channels; ++c) {
        const auto at = static_cast<size_t>((y * shape.width + x) * shape.channels + c);
        out[at] = static_cast<float>(smooth[at]);
      }
    }
  return out;
}

}  // namespace rocm_sd
