// Resizing of NHWC maps by weights per axis, and those weights.
// Problem   y[n,i,j,c] = sum over a, b of row_weights[i,a] col_weights[j,b] x[n, row_first[i]+a,
//           col_first[j]+b, c]
// Mapping   a thread takes a pack of channels of one output pixel, the grid's threads in turn; weights: a
//           thread per row or column of the result
// Traffic   x as often as windows overlap (from cache), y once
// Numerics  float, columns inside; weights in double, rounded once
// Limits    2^31 packs
#pragma once

#include "composable_kernels/block.hpp"
#include "composable_kernels/pack.hpp"
#include "composable_kernels/tile/unrolled.hpp"

namespace rocm_sd {

struct ResampleAxis {
  const int32_t *first, *count;  // [out]
  const float* weights;          // [out, width]
  int64_t width, in, out;
};

template <class T>
struct ResampleParams {
  const T* x;  // [images, rows.in, cols.in, channels]
  T* y;        // [images, rows.out, cols.out, channels]
  ResampleAxis rows, cols;
  int64_t images, channels;
  uint32_t workgroups;  // of the grid
};

// Cfg: T, the storage type; kVec, channels of a pack, which divides them.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void resample_body(const ResampleParams<typename Cfg::T>& p, const Block<Arch>& block) {
  constexpr int kVec = Cfg::kVec;
  const auto packs = static_cast<uint32_t>(p.channels / kVec), cols = static_cast<uint32_t>(p.cols.out),
             rows = static_cast<uint32_t>(p.rows.out);
  const uint32_t all = static_cast<uint32_t>(p.images) * rows * cols * packs;
  for (auto item = static_cast<uint32_t>(block.first_item()); item < all;
       item += static_cast<uint32_t>(block.item_stride())) {
    const uint32_t pixel = item / packs, line = pixel / cols, image = line / rows;
    const uint32_t c = (item - pixel * packs) * kVec, j = pixel - line * cols, i = line - image * rows;
    float sum[kVec] = {};
    for (int64_t a = 0; a < p.rows.count[i]; ++a) {
      const auto* row =
          p.x + ((image * p.rows.in + p.rows.first[i] + a) * p.cols.in + p.cols.first[j]) * p.channels + c;
      float inner[kVec] = {};
      for (int64_t b = 0; b < p.cols.count[j]; ++b) {
        const auto from = load_pack<kVec>(row + b * p.channels);
        const float weight = p.cols.weights[j * p.cols.width + b];
        unrolled<kVec>([&](int k) { inner[k] += weight * to_float(from.x[k]); });
      }
      const float weight = p.rows.weights[i * p.rows.width + a];
      unrolled<kVec>([&](int k) { sum[k] += weight * inner[k]; });
    }
    Pack<typename Cfg::T, kVec> to;
    unrolled<kVec>([&](int k) { store(to.x[k], sum[k]); });
    store_pack(p.y + static_cast<int64_t>(pixel) * p.channels + c, to);
  }
}

// How a filter weighs inputs: by a window around the output's centre, by overlap (area), or the nearest
// alone.
enum class ResampleWindow : int32_t { kNearest, kArea, kBilinear, kBicubic, kLanczos3 };

struct ResampleTapsAxis {
  int32_t *first, *count;  // [out]
  float* weights;          // [out, width]
  int64_t width, in, out;
};
struct ResampleTapsParams {
  ResampleTapsAxis axes[2];
  ResampleWindow window;
  uint32_t workgroups;  // of the grid
};

namespace resamples {

ROCM_SD_DEVICE int64_t floor_to_int(double x) {
  const auto whole = static_cast<int64_t>(x);
  return static_cast<double>(whole) > x ? whole - 1 : whole;
}
// sin(pi x): the Taylor series within half a turn.
ROCM_SD_DEVICE double sin_pi(double x) {
  const int64_t turns = floor_to_int(x + 0.5);
  const double angle = (x - static_cast<double>(turns)) * 3.14159265358979323846, square = angle * angle;
  double sum = 1;
  for (int n = 18; n > 0; n -= 2) sum = 1 - sum * square / (n * (n + 1));
  return turns % 2 ? -angle * sum : angle * sum;
}
ROCM_SD_DEVICE double support(ResampleWindow window) {
  return window == ResampleWindow::kBilinear ? 1 : window == ResampleWindow::kBicubic ? 2 : 3;
}
ROCM_SD_DEVICE double evaluate(ResampleWindow window, double x) {
  x = x < 0 ? -x : x;
  if (x >= support(window)) return 0;
  if (window == ResampleWindow::kBilinear) return 1 - x;
  if (window == ResampleWindow::kBicubic)  // Keys, 1981, equation 15, a = -1/2
    return x < 1 ? 1 + x * x * (1.5 * x - 2.5) : 2 + x * (-4 + x * (2.5 - 0.5 * x));
  if (x < 1e-8) return 1;
  const double angle = x * 3.14159265358979323846;
  return 3 * sin_pi(x) * sin_pi(x / 3) / (angle * angle);
}

// The inputs [first, last) that output i may touch.
struct Reach {
  int64_t first, last;
};
ROCM_SD_DEVICE Reach reach(ResampleWindow window, const ResampleTapsAxis& axis, int64_t i) {
  if (window == ResampleWindow::kNearest) {
    const int64_t nearest = (2 * i + 1) * axis.in / (2 * axis.out);
    return {nearest, nearest + 1};
  }
  if (window == ResampleWindow::kArea)  // in integers, so that whole factors touch no further pixel
    return {i * axis.in / axis.out, ((i + 1) * axis.in + axis.out - 1) / axis.out};
  const double scale = static_cast<double>(axis.in) / static_cast<double>(axis.out);
  const double centre = (static_cast<double>(i) + 0.5) * scale;
  const double radius = support(window) * (scale > 1 ? scale : 1);
  const int64_t first = floor_to_int(centre - radius), last = floor_to_int(centre + radius + 1);
  return {first < 0 ? 0 : first, last > axis.in ? axis.in : last};
}
ROCM_SD_DEVICE double weight(ResampleWindow window, const ResampleTapsAxis& axis, int64_t i, int64_t j) {
  if (window == ResampleWindow::kNearest) return 1;
  const double scale = static_cast<double>(axis.in) / static_cast<double>(axis.out);
  const double x = static_cast<double>(j), y = static_cast<double>(i);
  if (window == ResampleWindow::kArea) {
    const double begin = y * scale, end = (y + 1) * scale;
    return (x + 1 < end ? x + 1 : end) - (x > begin ? x : begin);
  }
  return evaluate(window, (x + 0.5 - (y + 0.5) * scale) / (scale > 1 ? scale : 1));
}

}  // namespace resamples

// Fills both axes.
template <class Arch>
ROCM_SD_DEVICE void resample_taps_body(const ResampleTapsParams& p, const Block<Arch>& block) {
  for (int64_t item = block.first_item(); item < p.axes[0].out + p.axes[1].out; item += block.item_stride()) {
    const bool second = item >= p.axes[0].out;
    const ResampleTapsAxis& axis = p.axes[second ? 1 : 0];
    const int64_t i = second ? item - p.axes[0].out : item;
    const auto [first, last] = resamples::reach(p.window, axis, i);
    axis.first[i] = static_cast<int32_t>(first);
    axis.count[i] = static_cast<int32_t>(last - first);
    double sum = 0;
    for (int64_t j = first; j < last; ++j) sum += resamples::weight(p.window, axis, i, j);
    for (int64_t j = first; j < last; ++j)
      axis.weights[i * axis.width + j - first] =
          static_cast<float>(resamples::weight(p.window, axis, i, j) / sum);
  }
}

}  // namespace rocm_sd
