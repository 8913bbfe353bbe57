#include "kernels/resample/taps.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rocm_sd {
namespace {

// Half the width of the kernel, in pixels of the coarser side.
double support_of(ResampleMode mode) {
  switch (mode) {
    case ResampleMode::kBilinear: return 1;
    case ResampleMode::kBicubic: return 2;
    case ResampleMode::kLanczos3: return 3;
    default: return 0;
  }
}

double evaluate(ResampleMode mode, double x) {
  x = std::fabs(x);
  if (x >= support_of(mode)) return 0;
  switch (mode) {
    case ResampleMode::kBilinear: return 1 - x;
    case ResampleMode::kBicubic:  // Keys, 1981, equation 15, a = -1/2
      return x < 1 ? 1 + x * x * (1.5 * x - 2.5) : 2 + x * (-4 + x * (2.5 - 0.5 * x));
    default: {
      const double angle = std::numbers::pi * x;
      return x < 1e-8 ? 1 : 3 * std::sin(angle) * std::sin(angle / 3) / (angle * angle);
    }
  }
}

// The inputs [first, last) that output i may touch.
struct Reach {
  int64_t first, last;
};
Reach reach_of(ResampleMode mode, int64_t in, int64_t out, int64_t i) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const auto clamped = [&](double x) {
    return std::clamp(static_cast<int64_t>(std::floor(x)), int64_t{0}, in);
  };
  if (mode == ResampleMode::kNearest) {
    const int64_t nearest = std::min((2 * i + 1) * in / (2 * out), in - 1);
    return {nearest, nearest + 1};
  }
  if (mode == ResampleMode::kArea)  // in integers, so that whole factors touch no further pixel
    return {i * in / out, ((i + 1) * in + out - 1) / out};
  const double centre = (static_cast<double>(i) + 0.5) * scale,
               radius = support_of(mode) * std::max(scale, 1.0);
  const Reach reach = {clamped(centre - radius), clamped(centre + radius + 1)};
  return reach;
}

double weight_of(ResampleMode mode, int64_t in, int64_t out, int64_t i, int64_t j) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double x = static_cast<double>(j), y = static_cast<double>(i);
  switch (mode) {
    case ResampleMode::kNearest: return 1;
    case ResampleMode::kArea: return std::min(x + 1, (y + 1) * scale) - std::max(x, y * scale);
    default: return evaluate(mode, (x + 0.5 - (y + 0.5) * scale) / std::max(scale, 1.0));
  }
}

}  // namespace

ResampleTaps make_taps(ResampleMode mode, int64_t in, int64_t out) {
  ResampleTaps taps;
  for (int64_t i = 0; i < out; ++i) {
    const Reach reach = reach_of(mode, in, out, i);
    taps.first.push_back(static_cast<int32_t>(reach.first));
    taps.count.push_back(static_cast<int32_t>(reach.last - reach.first));
    taps.width = std::max(taps.width, reach.last - reach.first);
  }
  taps.weights.resize(static_cast<size_t>(out * taps.width));
  for (int64_t i = 0; i < out; ++i) {
    float* weights = taps.weights.data() + i * taps.width;
    const int64_t count = taps.count[static_cast<size_t>(i)], first = taps.first[static_cast<size_t>(i)];
    double sum = 0;
    for (int64_t j = 0; j < count; ++j) sum += weight_of(mode, in, out, i, first + j);
    for (int64_t j = 0; j < count; ++j)
      weights[j] = static_cast<float>(weight_of(mode, in, out, i, first + j) / sum);
  }
  return taps;
}

}  // namespace rocm_sd
