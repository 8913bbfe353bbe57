#include "pipeline/pillow_resize.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace rocm_sd {
namespace {

constexpr int kBits = 22;  // of a weight's fraction

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) { return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0; }

// What one output pixel sums: weights of the pixels from `first` on.
struct Taps {
  int first = 0;
  std::vector<int32_t> weights;
};

std::vector<Taps> taps_of(int from, int to, PillowFilter filter) {
  const double scale = static_cast<double>(from) / to, stretch = std::max(scale, 1.0);
  const double support = (filter == PillowFilter::kBicubic ? 2.0 : 3.0) * stretch;
  std::vector<Taps> out;
  for (int i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    const int first = std::max(static_cast<int>(centre - support + 0.5), 0),
              end = std::min(static_cast<int>(centre + support + 0.5), from);
    std::vector<double> weights;
    double sum = 0;
    for (int x = first; x < end; ++x) {
      const double at = (x - centre + 0.5) * (1.0 / stretch);
      weights.push_back(filter == PillowFilter::kBicubic ? bicubic(at) : lanczos(at));
      sum += weights.back();
    }
    Taps taps{first, {}};
    for (double w : weights) {
      if (sum != 0) w /= sum;
      taps.weights.push_back(static_cast<int32_t>((w < 0 ? -0.5 : 0.5) + w * (1 << kBits)));
    }
    out.push_back(std::move(taps));
  }
  return out;
}

uint8_t rounded(int64_t sum) { return static_cast<uint8_t>(std::clamp<int64_t>(sum >> kBits, 0, 255)); }

// One pass along an axis: lines of `from` values that lie `step` apart become lines of `to`.
std::vector<uint8_t> resize_axis(const std::vector<uint8_t>& pixels, size_t outer, int from, int to,
                                 size_t step, PillowFilter filter) {
  if (from == to) return pixels;
  const std::vector<Taps> taps = taps_of(from, to, filter);
  std::vector<uint8_t> out(outer * static_cast<size_t>(to) * step);
  for (size_t o = 0; o < outer; ++o)
    for (size_t i = 0; i < taps.size(); ++i)
      for (size_t s = 0; s < step; ++s) {
        int64_t sum = int64_t{1} << (kBits - 1);
        const size_t begin = (o * static_cast<size_t>(from) + static_cast<size_t>(taps[i].first)) * step + s;
        for (size_t k = 0; k < taps[i].weights.size(); ++k)
          sum += int64_t{pixels[begin + k * step]} * taps[i].weights[k];
        out[(o * taps.size() + i) * step + s] = rounded(sum);
      }
  return out;
}

}  // namespace

std::vector<uint8_t> pillow_resize(const std::vector<uint8_t>& pixels, int width, int height, int channels,
                                   int new_width, int new_height, PillowFilter filter) {
  const auto across = resize_axis(pixels, static_cast<size_t>(height), width, new_width,
                                  static_cast<size_t>(channels), filter);
  return resize_axis(across, 1, height, new_height,
                     static_cast<size_t>(new_width) * static_cast<size_t>(channels), filter);
}

}  // namespace rocm_sd
