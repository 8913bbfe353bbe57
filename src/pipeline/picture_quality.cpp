#include "pipeline/picture_quality.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <vector>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

using Color = std::array<double, 3>;
using Line = std::vector<double>;  // of a separable filter, its middle in the middle

// One value for each pixel.
struct Plane {
  int height = 0, width = 0;
  std::vector<double> values{};

  Plane(int rows, int cols)
      : height(rows), width(cols), values(static_cast<size_t>(rows) * static_cast<size_t>(cols)) {}
  double& at(int y, int x) {
    return values[static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)];
  }
  double at(int y, int x) const {
    return values[static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)];
  }
};

enum class Border { kRepeated, kLeftOut };

// down along the columns, across along the rows, as a correlation.
Plane filtered(const Plane& in, const Line& down, const Line& across, Border border) {
  const int ry = static_cast<int>(down.size() / 2), rx = static_cast<int>(across.size() / 2);
  const bool inside = border == Border::kLeftOut;
  const int top = inside ? ry : 0, left = inside ? rx : 0;
  Plane rows(in.height - 2 * top, in.width), out(in.height - 2 * top, in.width - 2 * left);
  for (int y = 0; y < rows.height; ++y)
    for (int i = -ry; i <= ry; ++i) {
      const double weight = down[static_cast<size_t>(i + ry)];
      const int from = std::clamp(y + top + i, 0, in.height - 1);
      for (int x = 0; x < in.width; ++x) rows.at(y, x) += weight * in.at(from, x);
    }
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x)
      for (int i = -rx; i <= rx; ++i)
        out.at(y, x) +=
            across[static_cast<size_t>(i + rx)] * rows.at(y, std::clamp(x + left + i, 0, in.width - 1));
  return out;
}

Plane product(const Plane& a, const Plane& b) {
  Plane out = a;
  for (size_t i = 0; i < out.values.size(); ++i) out.values[i] *= b.values[i];
  return out;
}

Line line_of(int radius, auto value) {
  Line out;
  for (int i = -radius; i <= radius; ++i) out.push_back(value(static_cast<double>(i)));
  return out;
}
double sum_of(const Line& line) { return std::accumulate(line.begin(), line.end(), 0.0); }

double mean_of(const std::vector<double>& values) {
  return sum_of(values) / static_cast<double>(values.size());
}

double psnr_of(const Image& a, const Image& b) {
  double squares = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) squares += std::pow(a.rgb[i] - b.rgb[i], 2);
  if (squares == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.rgb.size()) / squares);
}

Plane luma_of(const Image& image) {
  Plane out(image.height, image.width);
  for (size_t i = 0; i < out.values.size(); ++i)
    out.values[i] =
        (0.299 * image.rgb[3 * i] + 0.587 * image.rgb[3 * i + 1] + 0.114 * image.rgb[3 * i + 2]) / 255;
  return out;
}

double ssim_of(const Image& a, const Image& b) {
  constexpr int kRadius = 5;
  if (a.width <= 2 * kRadius || a.height <= 2 * kRadius) return std::numeric_limits<double>::quiet_NaN();
  Line window = line_of(kRadius, [](double i) { return std::exp(-i * i / (2 * 1.5 * 1.5)); });
  const double sum = sum_of(window);
  for (double& w : window) w /= sum;
  const Plane x = luma_of(a), y = luma_of(b);
  const auto mean = [&](const Plane& p) { return filtered(p, window, window, Border::kLeftOut).values; };
  const std::vector<double> mx = mean(x), my = mean(y), xx = mean(product(x, x)), yy = mean(product(y, y)),
                            xy = mean(product(x, y));
  constexpr double kC1 = 0.01 * 0.01, kC2 = 0.03 * 0.03;
  std::vector<double> out(mx.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const double cross = xy[i] - mx[i] * my[i];
    const double variances = xx[i] - mx[i] * mx[i] + yy[i] - my[i] * my[i];
    out[i] = (2 * mx[i] * my[i] + kC1) * (2 * cross + kC2) /
             ((mx[i] * mx[i] + my[i] * my[i] + kC1) * (variances + kC2));
  }
  return mean_of(out);
}

// ---- FLIP; the sections are the paper's ----

// 0.7 m before a display of 3840 pixels on 0.7 m.
constexpr double kPixelsPerDegree = 3840 * std::numbers::pi / 180;

// sRGB's primaries to CIE XYZ (IEC 61966-2-1), the way back, and white.
constexpr std::array<Color, 3> kToXyz = {
    {{10135552.0 / 24577794, 8788810.0 / 24577794, 4435075.0 / 24577794},
     {2613072.0 / 12288897, 8788810.0 / 12288897, 887015.0 / 12288897},
     {1425312.0 / 73733382, 8788810.0 / 73733382, 70074185.0 / 73733382}}};

double minor_of(const std::array<Color, 3>& m, size_t row, size_t col) {
  const size_t r1 = (row + 1) % 3, r2 = (row + 2) % 3, c1 = (col + 1) % 3, c2 = (col + 2) % 3;
  return m[r1][c1] * m[r2][c2] - m[r1][c2] * m[r2][c1];
}
std::array<Color, 3> inverse(const std::array<Color, 3>& m) {
  const double determinant =
      m[0][0] * minor_of(m, 0, 0) + m[0][1] * minor_of(m, 0, 1) + m[0][2] * minor_of(m, 0, 2);
  std::array<Color, 3> out{};
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 3; ++j) out[j][i] = minor_of(m, i, j) / determinant;
  return out;
}
Color times(const std::array<Color, 3>& m, const Color& v) {
  Color out{};
  for (size_t i = 0; i < 3; ++i) out[i] = m[i][0] * v[0] + m[i][1] * v[1] + m[i][2] * v[2];
  return out;
}
const Color& white() {
  static const Color color = times(kToXyz, {1, 1, 1});
  return color;
}
// Linear RGB -> XYZ as shares of white's.
Color shares_of_white(const Color& rgb) {
  Color out = times(kToXyz, rgb);
  for (size_t i = 0; i < 3; ++i) out[i] /= white()[i];
  return out;
}

// YCxCz, a plane each (4.1).
using Opponent = std::array<Plane, 3>;

Opponent opponent_of(const Image& image) {
  Plane plane(image.height, image.width);
  Opponent out = {plane, plane, plane};
  for (size_t i = 0; i < plane.values.size(); ++i) {
    Color linear;
    for (size_t c = 0; c < 3; ++c) {
      const double v = image.rgb[3 * i + c] / 255.0;
      linear[c] = v > 0.04045 ? std::pow((v + 0.055) / 1.055, 2.4) : v / 12.92;
    }
    const Color share = shares_of_white(linear);
    out[0].values[i] = 116 * share[1] - 16;
    out[1].values[i] = 500 * (share[0] - share[1]);
    out[2].values[i] = 200 * (share[1] - share[2]);
  }
  return out;
}

// CIELab whose a and b weigh less in the dark (4.1).
Color hunt_lab(const Color& rgb) {
  constexpr double kEdge = 6.0 / 29;
  Color f = shares_of_white(rgb);
  for (double& t : f) t = t > kEdge * kEdge * kEdge ? std::cbrt(t) : t / (3 * kEdge * kEdge) + 4.0 / 29;
  const double light = 116 * f[1] - 16;
  return {light, 0.01 * light * 500 * (f[0] - f[1]), 0.01 * light * 200 * (f[1] - f[2])};
}
double hyab(const Color& a, const Color& b) {
  return std::abs(a[0] - b[0]) + std::hypot(a[1] - b[1], a[2] - b[2]);
}

// Contrast sensitivity as sums of Gaussians (4.1): weight, width in degrees squared.
struct Gaussian {
  double weight, width;
};

Plane as_the_eye_sees(const Plane& channel, const std::vector<Gaussian>& sensitivity) {
  constexpr double kWidest = 0.04;
  const int radius = static_cast<int>(
      std::ceil(3 * std::sqrt(kWidest / (2 * std::numbers::pi * std::numbers::pi)) * kPixelsPerDegree));
  Plane out(channel.height, channel.width);
  double total = 0;
  for (const Gaussian& g : sensitivity) {
    const Line line = line_of(radius, [&](double i) {
      const double degrees = i / kPixelsPerDegree;
      return std::exp(-std::numbers::pi * std::numbers::pi * degrees * degrees / g.width);
    });
    const double scale = g.weight * std::sqrt(std::numbers::pi / g.width);
    const Plane seen = filtered(channel, line, line, Border::kRepeated);
    for (size_t i = 0; i < out.values.size(); ++i) out.values[i] += scale * seen.values[i];
    total += scale * sum_of(line) * sum_of(line);
  }
  for (double& v : out.values) v /= total;
  return out;
}

// As linear RGB that a display can show, in hunt_lab().
std::vector<Color> seen_colors(const Opponent& color) {
  const std::array<std::vector<Gaussian>, 3> sensitivity = {
      {{{1, 0.0047}}, {{1, 0.0053}}, {{34.1, 0.04}, {13.5, 0.025}}}};
  static const std::array<Color, 3> kFromXyz = inverse(kToXyz);
  const Opponent seen = {as_the_eye_sees(color[0], sensitivity[0]), as_the_eye_sees(color[1], sensitivity[1]),
                         as_the_eye_sees(color[2], sensitivity[2])};
  std::vector<Color> out;
  for (size_t i = 0; i < seen[0].values.size(); ++i) {
    const double y = (seen[0].values[i] + 16) / 116;
    const Color xyz = {(y + seen[1].values[i] / 500) * white()[0], y * white()[1],
                       (y - seen[2].values[i] / 200) * white()[2]};
    Color rgb = times(kFromXyz, xyz);
    for (double& v : rgb) v = std::clamp(v, 0.0, 1.0);
    out.push_back(hunt_lab(rgb));
  }
  return out;
}

std::vector<double> color_differences(const Opponent& a, const Opponent& b) {
  constexpr double kExponent = 0.7, kKnee = 0.4, kAtKnee = 0.95;
  const double most = std::pow(hyab(hunt_lab({0, 1, 0}), hunt_lab({0, 0, 1})), kExponent);
  const std::vector<Color> one = seen_colors(a), other = seen_colors(b);
  std::vector<double> out;
  for (size_t i = 0; i < one.size(); ++i) {
    const double d = std::pow(hyab(one[i], other[i]), kExponent), knee = kKnee * most;
    out.push_back(d < knee ? kAtKnee / knee * d : kAtKnee + (d - knee) / (most - knee) * (1 - kAtKnee));
  }
  return out;
}

// Strength of edges (order 1) or of points (order 2) (4.2).
std::vector<double> feature_strength(const Plane& light, int order) {
  const double deviation = 0.5 * 0.082 * kPixelsPerDegree;
  const int radius = static_cast<int>(std::ceil(3 * deviation));
  const Line gauss =
      line_of(radius, [&](double i) { return std::exp(-i * i / (2 * deviation * deviation)); });
  Line line = line_of(radius, [&](double i) {
    const double g = std::exp(-i * i / (2 * deviation * deviation));
    return order == 1 ? -i * g : (i * i / (deviation * deviation) - 1) * g;
  });
  // As the filter of two dimensions that this is a factor of: positive weights add to 1, negative ones to -1.
  double above = 0, below = 0;
  for (const double w : line) (w > 0 ? above : below) += w;
  for (double& w : line) w /= (w > 0 ? above : -below) * sum_of(gauss);
  const Plane x = filtered(light, gauss, line, Border::kRepeated);
  const Plane y = filtered(light, line, gauss, Border::kRepeated);
  std::vector<double> out;
  for (size_t i = 0; i < x.values.size(); ++i) out.push_back(std::hypot(x.values[i], y.values[i]));
  return out;
}

double flip_of(const Image& a, const Image& b) {
  const Opponent one = opponent_of(a), other = opponent_of(b);
  std::vector<double> feature(one[0].values.size(), 0.0);
  for (const int order : {1, 2}) {
    const auto strength = [&](const Opponent& color) {
      Plane light = color[0];
      for (double& v : light.values) v = (v + 16) / 116;
      return feature_strength(light, order);
    };
    const std::vector<double> x = strength(one), y = strength(other);
    for (size_t i = 0; i < feature.size(); ++i) feature[i] = std::max(feature[i], std::abs(x[i] - y[i]));
  }
  std::vector<double> out = color_differences(one, other);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = std::pow(out[i], 1 - std::sqrt(feature[i] / std::numbers::sqrt2));
  return mean_of(out);
}

}  // namespace

PictureQuality picture_quality(const Image& reference, const Image& picture) {
  require<UsageError>(reference.width == picture.width && reference.height == picture.height,
                      "compare: pictures of ", reference.width, " x ", reference.height, " and of ",
                      picture.width, " x ", picture.height, "; expected one size");
  require<UsageError>(!reference.rgb.empty(), "compare: an empty picture");
  return {psnr_of(reference, picture), ssim_of(reference, picture), flip_of(reference, picture)};
}

}  // namespace rocm_sd
