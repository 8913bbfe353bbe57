#include "pipeline/latent_resize.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace rocm_sd {
namespace {

struct Tap {
  int64_t from;
  double weight;
};
using Taps = std::vector<Tap>;

// Keys, "Cubic Convolution Interpolation", 1981.
double cubic(double x, double a) {
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((x - 5) * x + 8) * x * a - 4 * a : 0;
}

Taps nearest(int64_t i, int64_t in, int64_t out, float shift) {
  const float scale = static_cast<float>(in) / static_cast<float>(out);
  const auto at = static_cast<int64_t>(std::floor((static_cast<float>(i) + shift) * scale));
  return {{std::min(at, in - 1), 1.0}};
}

Taps plain(int64_t i, int64_t in, int64_t out, bool bicubic) {
  constexpr double kA = -0.75;
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  double at = (static_cast<double>(i) + 0.5) * scale - 0.5;
  if (!bicubic) at = std::max(at, 0.0);
  const auto whole = static_cast<int64_t>(std::floor(at));
  Taps taps;
  for (int64_t k = bicubic ? -1 : 0; k <= (bicubic ? 2 : 1); ++k) {
    const double distance = at - static_cast<double>(whole + k);
    taps.push_back(
        {std::clamp<int64_t>(whole + k, 0, in - 1), bicubic ? cubic(distance, kA) : 1 - std::fabs(distance)});
  }
  return taps;
}

Taps smooth(int64_t i, int64_t in, int64_t out, bool bicubic) {
  constexpr double kA = -0.5;
  const double scale = static_cast<double>(in) / static_cast<double>(out), stretch = std::max(scale, 1.0);
  const double centre = (static_cast<double>(i) + 0.5) * scale, support = (bicubic ? 2.0 : 1.0) * stretch;
  const auto first = std::max<int64_t>(static_cast<int64_t>(centre - support + 0.5), 0),
             end = std::min<int64_t>(static_cast<int64_t>(centre + support + 0.5), in);
  Taps taps;
  double sum = 0;
  for (int64_t j = first; j < end; ++j) {
    const double x = (static_cast<double>(j) + 0.5 - centre) / stretch;
    taps.push_back({j, bicubic ? cubic(x, kA) : std::max(0.0, 1 - std::fabs(x))});
    sum += taps.back().weight;
  }
  for (Tap& tap : taps) tap.weight /= sum;
  return taps;
}

Taps taps_of(int64_t i, int64_t in, int64_t out, LatentResize mode) {
  switch (mode) {
    case LatentResize::kNearest: return nearest(i, in, out, 0);
    case LatentResize::kNearestExact: return nearest(i, in, out, 0.5f);
    case LatentResize::kBilinear: return plain(i, in, out, false);
    case LatentResize::kBicubic: return plain(i, in, out, true);
    case LatentResize::kBilinearSmooth: return smooth(i, in, out, false);
    case LatentResize::kBicubicSmooth: return smooth(i, in, out, true);
  }
  return {};
}

// The last axis: [rows,from] -> [to,rows], transposed within each plane of `rows`.
std::vector<double> resize_transposed(const std::vector<double>& values, int64_t rows, int64_t from,
                                      int64_t to, LatentResize mode) {
  const int64_t planes = static_cast<int64_t>(values.size()) / (rows * from);
  std::vector<double> out(static_cast<size_t>(planes * rows * to));
  for (int64_t x = 0; x < to; ++x) {
    const Taps taps = taps_of(x, from, to, mode);
    for (int64_t p = 0; p < planes; ++p)
      for (int64_t y = 0; y < rows; ++y) {
        double sum = 0;
        for (const Tap& tap : taps)
          sum += tap.weight * values[static_cast<size_t>((p * rows + y) * from + tap.from)];
        out[static_cast<size_t>((p * to + x) * rows + y)] = sum;
      }
  }
  return out;
}

}  // namespace

std::optional<LatentResize> latent_resize_named(const std::string& name) {
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "latent") return LatentResize::kBilinear;
  if (lower == "latent (antialiased)") return LatentResize::kBilinearSmooth;
  if (lower == "latent (bicubic)") return LatentResize::kBicubic;
  if (lower == "latent (bicubic antialiased)") return LatentResize::kBicubicSmooth;
  if (lower == "latent (nearest)") return LatentResize::kNearest;
  if (lower == "latent (nearest-exact)") return LatentResize::kNearestExact;
  return std::nullopt;
}

std::vector<float> resize_planes(const std::vector<float>& values, int64_t height, int64_t width,
                                 int64_t new_height, int64_t new_width, LatentResize mode) {
  const std::vector<double> exact(values.begin(), values.end());
  const auto across = resize_transposed(exact, height, width, new_width, mode);      // [planes,w',h]
  const auto both = resize_transposed(across, new_width, height, new_height, mode);  // [planes,h',w']
  return {both.begin(), both.end()};
}

}  // namespace rocm_sd
