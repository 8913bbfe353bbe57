// Group norm of an image that lies in bands: moments of runs of pixels, their merger, normalising.
// Problem   mean and deviation over groups of channels of all bands; y = act((x - mean) * scale + bias)
// Mapping   moments: one wave per run and group; merger: one wave per group; normalising: one thread per 8
//           channels
// Traffic   x twice for the moments (the second time from cache), once more for y
// Numerics  two passes in float within a run of 2048 pixels or so; runs are merged in double
// Limits    normalising: channels are a multiple of 8
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

template <class T>
struct GroupMomentsParams {
  const T* x;  // [pixels, channels]
  float* out;  // [rows, groups, 3]
  int64_t pixels;
  int32_t channels, groups, rows;
};

// item: row * groups + group. Called by a whole wave.
template <class Arch, class T>
ROCM_SD_DEVICE void group_moments_body(const GroupMomentsParams<T>& p, int64_t item) {
  const int64_t row = item / p.groups;
  const int group = static_cast<int>(item % p.groups), width = p.channels / p.groups;
  const int64_t begin = p.pixels * row / p.rows, end = p.pixels * (row + 1) / p.rows;
  const T* x = p.x + begin * p.channels + group * width;
  const int count = static_cast<int>(end - begin) * width;
  const auto value = [&](int i) {
    return to_float(x[static_cast<int64_t>(i / width) * p.channels + i % width]);
  };
  float sum = 0;
  for (int i = Arch::lane(); i < count; i += Arch::lanes) sum += value(i);
  const float mean = Arch::wave_sum(sum) / static_cast<float>(count);
  float squares = 0;
  for (int i = Arch::lane(); i < count; i += Arch::lanes) {
    const float step = value(i) - mean;
    squares += step * step;
  }
  squares = Arch::wave_sum(squares);
  if (Arch::lane() != 0) return;
  float* out = p.out + item * 3;
  out[0] = static_cast<float>(count);
  out[1] = mean;
  out[2] = squares;
}

struct GroupScaleParams {
  const float* moments;  // [rows, groups, 3]
  const float* gain;     // [channels]
  float* out;            // [2, channels]
  int32_t rows, channels, groups;
  float eps;
};

// Called by a whole wave for each group.
template <class Arch>
ROCM_SD_DEVICE void group_scale_body(const GroupScaleParams& p, int group) {
  const auto moment = [&](int row, int i) {
    return static_cast<double>(p.moments[(static_cast<int64_t>(row) * p.groups + group) * 3 + i]);
  };
  double count = 0, sum = 0, squares = 0;
  for (int r = Arch::lane(); r < p.rows; r += Arch::lanes) {
    count += moment(r, 0);
    sum += moment(r, 0) * moment(r, 1);
  }
  count = Arch::wave_sum(count);
  const double mean = Arch::wave_sum(sum) / count;
  for (int r = Arch::lane(); r < p.rows; r += Arch::lanes) {
    const double step = moment(r, 1) - mean;
    squares += moment(r, 2) + moment(r, 0) * step * step;
  }
  const double variance = Arch::wave_sum(squares) / count;
  const float scale = 1.0f / Arch::sqrt(static_cast<float>(variance) + p.eps);
  const int width = p.channels / p.groups;
  for (int c = group * width + Arch::lane(); c < (group + 1) * width; c += Arch::lanes) {
    p.out[c] = static_cast<float>(mean);
    p.out[p.channels + c] = p.gain[c] * scale;
  }
}

template <class T>
struct NormaliseParams {
  const T* x;          // [pixels, channels]
  const float* scale;  // [2, channels]: mean, gain over deviation
  const float* bias;   // [channels]
  T* y;
  int64_t packs;  // of 8 channels
  int32_t channels;
  int32_t silu;
};

template <class Arch, class T>
ROCM_SD_DEVICE void normalise_pack_body(const NormaliseParams<T>& p, int64_t pack) {
  const int c = static_cast<int>(pack * 8 % p.channels);
  Vec8<T> values = *reinterpret_cast<const Vec8<T>*>(p.x + pack * 8);
  ROCM_SD_UNROLL
  for (int j = 0; j < 8; ++j) {
    const float y = (to_float(values.x[j]) - p.scale[c + j]) * p.scale[p.channels + c + j] + p.bias[c + j];
    store(values.x[j], p.silu ? y / (1.0f + Arch::exp(-y)) : y);
  }
  *reinterpret_cast<Vec8<T>*>(p.y + pack * 8) = values;
}

}  // namespace rocm_sd
