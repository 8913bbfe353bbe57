// Layer norm and group norm.
// Problem   y = (x - mean) / sqrt(variance + eps) * gain + bias, over rows or over groups of channels of an
// image Mapping   one wave per row, or per group of one image; a lane owns every lanes-th element Traffic   x
// three times (once from memory where it fits in cache), y once; no LDS Numerics  two passes; float over
// rows, double over groups      Limits  none
#pragma once

#include "composable_kernels/block.hpp"

namespace rocm_sd {

template <class T>
struct LayerNormParams {
  const T* x;  // [rows, cols]
  const float *gain, *bias;
  T* y;
  int64_t rows, cols;
  float eps;
};

// Cfg::T is the storage type.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void layer_norm_body(const LayerNormParams<typename Cfg::T>& p, const Block<Arch>& block) {
  const float share = 1.0f / static_cast<float>(p.cols);
  for (int64_t row = block.first_row(); row < p.rows; row += block.row_stride()) {
    const auto* x = p.x + row * p.cols;
    auto* y = p.y + row * p.cols;
    const float mean = wave_sum_over(block, p.cols, [&](int64_t c) { return to_float(x[c]); }) * share;
    const float variance = wave_sum_over(block, p.cols,
                                         [&](int64_t c) {
                                           const float d = to_float(x[c]) - mean;
                                           return d * d;
                                         }) *
                           share;
    const float scale = 1.0f / Arch::sqrt(variance + p.eps);
    for (int64_t c = block.lane(); c < p.cols; c += Arch::lanes)
      store(y[c], (to_float(x[c]) - mean) * scale * p.gain[c] + p.bias[c]);
  }
}

template <class T>
struct GroupNormParams {
  const T *x, *second;  // [images, pixels, first], [images, pixels, channels - first]
  const float *gain, *bias;
  T* y;  // [images, pixels, channels]
  int64_t images, pixels, channels, first, groups;
  float eps;
  bool silu;
};

// Row r of the grid is group r % groups of image r / groups.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void group_norm_body(const GroupNormParams<typename Cfg::T>& p, const Block<Arch>& block) {
  const int64_t width = p.channels / p.groups, count = p.pixels * width;
  for (int64_t row = block.first_row(); row < p.images * p.groups; row += block.row_stride()) {
    const int64_t image = row / p.groups, begin = row % p.groups * width;
    const auto value = [&](int64_t i) {
      const int64_t pixel = image * p.pixels + i / width, c = begin + i % width;
      return to_float(c < p.first ? p.x[pixel * p.first + c]
                                  : p.second[pixel * (p.channels - p.first) + c - p.first]);
    };
    const double sum =
        wave_sum_over_double(block, count, [&](int64_t i) { return static_cast<double>(value(i)); });
    const float mean = static_cast<float>(sum / static_cast<double>(count));
    const double squares = wave_sum_over_double(block, count, [&](int64_t i) {
      const float d = value(i) - mean;
      return static_cast<double>(d) * static_cast<double>(d);
    });
    const float scale = 1.0f / Arch::sqrt(static_cast<float>(squares / static_cast<double>(count)) + p.eps);
    for (int64_t i = block.lane(); i < count; i += Arch::lanes) {
      const int64_t pixel = image * p.pixels + i / width, c = begin + i % width;
      const float y = (value(i) - mean) * scale * p.gain[c] + p.bias[c];
      store(p.y[pixel * p.channels + c], p.silu ? y / (1.0f + Arch::exp(-y)) : y);
    }
  }
}

}  // namespace rocm_sd
