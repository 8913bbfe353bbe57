// Group norm over whole images, with SiLU, of one map or of the concat of two: what its two forms share.
// group_norm_whole.hpp keeps a group of one image in the registers of a workgroup; group_norm_parts.hpp
// measures parts of the pixels, then normalises.
#pragma once

#include "composable_kernels/block.hpp"
#include "composable_kernels/pack.hpp"

namespace rocm_sd {

// y = act((x - mean) / sqrt(variance + eps) * gain + bias), moments over a group of channels of one image.
template <class T>
struct GroupNormParams {
  const T *x, *second;  // [images, pixels, first], [images, pixels, channels - first]
  const float *gain, *bias;
  T* y;            // [images, pixels, channels]
  float* partial;  // [images, parts, groups, 2]: mean, and the sum of the squares of what differs from it
  float* merged;   // [images, groups, 2]: the same of whole images
  int32_t images, pixels, channels, first, groups;
  int32_t slab;           // channels of one workgroup: whole groups, a multiple of the pack
  int32_t parts, part;    // measured parts of an image, pixels of each but the last
  int32_t pieces, piece;  // normalised pieces of an image, pixels of each but the last
  float eps;
  int32_t silu;
};

namespace group_norms {

// Channel `channel` of an image's first pixel, and the elements from pixel to pixel.
template <class T>
struct Source {
  const T* data;
  int64_t stride;
};
template <class T>
ROCM_SD_DEVICE Source<T> source(const GroupNormParams<T>& p, int64_t image, int channel) {
  const int second = p.channels - p.first;
  if (channel < p.first) return {p.x + image * p.pixels * p.first + channel, p.first};
  return {p.second + image * p.pixels * second + channel - p.first, second};
}

// What normalises kVec neighbouring channels.
template <int kVec>
struct Affine {
  float mean[kVec];
  Pack<float, kVec> scale, bias;
};

template <class Arch, int kVec, class T>
ROCM_SD_DEVICE Pack<T, kVec> normalise(const Pack<T, kVec>& x, const Affine<kVec>& a, bool silu) {
  Pack<T, kVec> y;
  ROCM_SD_UNROLL
  for (int j = 0; j < kVec; ++j) {
    float value = (to_float(x.x[j]) - a.mean[j]) * a.scale.x[j] + a.bias.x[j];
    if (silu) value *= Arch::reciprocal(1.0f + Arch::exp(-value));
    store(y.x[j], value);
  }
  return y;
}

}  // namespace group_norms
}  // namespace rocm_sd
