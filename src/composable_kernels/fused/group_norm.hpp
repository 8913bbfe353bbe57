// Group norm over whole images, with SiLU, of one map or of the concat of two: what its two forms share.
// group_norm_whole.hpp keeps a group of one image in the registers of a workgroup; group_norm_parts.hpp
// measures parts of the pixels, then normalises.
#pragma once

#include <type_traits>

#include "composable_kernels/block.hpp"
#include "composable_kernels/pack.hpp"
#include "composable_kernels/tile/unrolled.hpp"

namespace rocm_sd {

// y = act((x - mean) / sqrt(variance + eps) * gain + bias), moments over a group of channels of one image.
template <class T>
struct GroupNormParams {
  const T *x, *second;  // [images, pixels, first], [images, pixels, channels - first]
  const float *gain, *bias;
  T* y;            // [images, pixels, channels]; under to_bf16 of bf16
  float* partial;  // [images, parts, groups, 2]: mean, and the sum of the squares of what differs from it
  float* merged;   // [images, groups, 2]: the same of whole images
  int32_t images, pixels, channels, first, groups;
  int32_t slab;           // channels of one workgroup: whole groups, a multiple of the pack
  int32_t parts, part;    // measured parts of an image, pixels of each but the last
  int32_t pieces, piece;  // normalised pieces of an image, pixels of each but the last
  float eps;
  int32_t silu;
  int32_t to_bf16;  // y is bf16; with x of float only
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

// What normalises kVec neighbouring channels: begin as gain and bias, then set() each channel. In 16-bit
// types mean and bias are joined: what that rounds off is 2^-24 of the mean's multiples of the deviation,
// which such a type cannot hold anyway if there are many.
template <class T, int kVec>
struct Affine {
  static constexpr bool kJoined = sizeof(T) == 2;
  Pack<float, kVec> scale, bias;
  float mean[kJoined ? 1 : kVec];

  ROCM_SD_DEVICE void load(const float* gains, const float* biases) {
    scale = load_pack<kVec>(gains);
    bias = load_pack<kVec>(biases);
  }
  ROCM_SD_DEVICE void set(int j, float mean_of, float scale_of) {
    scale.x[j] *= scale_of;
    if constexpr (kJoined)
      bias.x[j] -= mean_of * scale.x[j];
    else
      mean[j] = mean_of;
  }
  ROCM_SD_DEVICE float operator()(int j, float x) const {
    if constexpr (kJoined)
      return x * scale.x[j] + bias.x[j];
    else
      return (x - mean[j]) * scale.x[j] + bias.x[j];
  }
};

// values[j] = silu(values[j]) with one reciprocal for four: 1 / a = bcd / abcd. None of the four exceeds 2^31
// so that the product stays finite, which changes a result by at most 2^-31 of its value before.
template <class Arch>
ROCM_SD_DEVICE void silu_four(float* values) {
  float a[4];
  unrolled<4>([&](int j) { a[j] = 1.0f + Arch::exp2(-Arch::max(values[j] * 1.44269504088896f, -31.0f)); });
  const float front = a[0] * a[1], back = a[2] * a[3], all = Arch::reciprocal(front * back);
  const float of_front = all * back, of_back = all * front;
  values[0] *= of_front * a[1];
  values[1] *= of_front * a[0];
  values[2] *= of_back * a[3];
  values[3] *= of_back * a[2];
}

template <class Arch, int kVec, class T>
ROCM_SD_DEVICE Pack<T, kVec> normalise(const Pack<T, kVec>& x, const Affine<T, kVec>& affine, bool silu) {
  Pack<T, kVec> y;
  float values[kVec];
  // Not bf16: with what its conversions take, clusters would spill registers.
  if constexpr (Arch::kFewSpecials && std::is_same_v<T, Half> && kVec % 4 == 0) {
    unrolled<kVec>([&](int j) { values[j] = affine(j, to_float(x.x[j])); });
    if (silu)
      for (int j = 0; j < kVec; j += 4) silu_four<Arch>(values + j);
  } else {
    unrolled<kVec>([&](int j) {
      const float value = affine(j, to_float(x.x[j]));
      values[j] = silu ? value * Arch::reciprocal(1.0f + Arch::exp(-value)) : value;
    });
  }
  store_all(y, values);
  return y;
}

// Writes x, normalised, to element `at` of y.
template <class Arch, int kVec, class T>
ROCM_SD_DEVICE void write(const GroupNormParams<T>& p, int64_t at, const Pack<T, kVec>& x,
                          const Affine<T, kVec>& affine) {
  const auto y = normalise<Arch, kVec>(x, affine, p.silu != 0);
  if constexpr (sizeof(T) == 4) {
    if (p.to_bf16) {
      Pack<Bf16, kVec> rounded;
      store_all(rounded, y.x);
      return store_pack(reinterpret_cast<Bf16*>(p.y) + at, rounded);
    }
  }
  store_pack(p.y + at, y);
}

}  // namespace group_norms
}  // namespace rocm_sd
