// The host's loops of group_norm and layer_norm, compiled once per instruction set, and once more for CPUs
// that round to bf16 in hardware.
#include "kernels/norm/norm_rows.hpp"
#include "kernels/simd_math.hpp"

namespace rocm_sd::ROCM_SD_ISA {
namespace {

// Calls body(c, count) for vectors of channels; the last may be short.
template <class Body>
void for_vectors(int64_t channels, const Body& body) {
  int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) body(c, static_cast<int64_t>(kLanes));
  if (c < channels) body(c, channels - c);
}
template <class T>
Vec load_some(const T* p, int64_t count) {
  return count == kLanes ? load(p) : load_part(p, count);
}
template <class T>
void store_some(T* p, Vec v, int64_t count) {
  count == kLanes ? store(p, v) : store_part(p, v, count);
}

// sums[c] += the sum over `rows` (1 to 4) rows of term(x, c): one load and store of the sum for four of x.
template <int kRows, class T, class Term>
void add_rows(const T* x, int64_t stride, int64_t channels, float* sums, const Term& term) {
  for_vectors(channels, [&](int64_t c, int64_t count) {
    Vec sum = term(load_some(x + c, count), c, count);
    if constexpr (kRows == 4) {
      const Vec t1 = term(load_some(x + stride + c, count), c, count);
      const Vec t2 = term(load_some(x + 2 * stride + c, count), c, count);
      const Vec t3 = term(load_some(x + 3 * stride + c, count), c, count);
      sum = (sum + t1) + (t2 + t3);
    }
    store_some(sums + c, load_some(sums + c, count) + sum, count);
  });
}
template <class T, class Term>
void add_pixels(const NormPixels& x, float* sums, const Term& term) {
  const T* data = static_cast<const T*>(x.data);
  for (int64_t c = 0; c < x.channels; ++c) sums[c] = 0;
  int64_t i = 0;
  for (; i + 4 <= x.pixels; i += 4) add_rows<4>(data + i * x.stride, x.stride, x.channels, sums, term);
  for (; i < x.pixels; ++i) add_rows<1>(data + i * x.stride, x.stride, x.channels, sums, term);
}

template <class T>
void moments(const NormPixels& x, float* mean, float* squares) {
  add_pixels<T>(x, mean, [](Vec v, int64_t, int64_t) { return v; });
  const float share = 1.0f / static_cast<float>(x.pixels);
  for (int64_t c = 0; c < x.channels; ++c) mean[c] *= share;
  add_pixels<T>(x, squares, [mean](Vec v, int64_t c, int64_t count) {
    const Vec d = v - load_some(mean + c, count);
    return d * d;
  });
}
void channel_moments(const NormPixels& x, float* mean, float* squares) {
  x.bf16 ? moments<uint16_t>(x, mean, squares) : moments<float>(x, mean, squares);
}

// silu for results that are stored as Y.
inline Vec silu_for(const float*, Vec x) { return silu(x); }
inline Vec silu_for(const uint16_t*, Vec x) { return silu_coarse(x); }

template <class T, class Y, bool kSilu>
void normalise(const NormPixels& x, const float* mean, const float* scale, const float* bias, Y* y,
               int64_t y_stride) {
  for (int64_t i = 0; i < x.pixels; ++i) {
    const T* from = static_cast<const T*>(x.data) + i * x.stride;
    Y* to = y + i * y_stride;
    for_vectors(x.channels, [&](int64_t c, int64_t count) {
      const Vec v = (load_some(from + c, count) - load_some(mean + c, count)) * load_some(scale + c, count) +
                    load_some(bias + c, count);
      store_some(to + c, kSilu ? silu_for(to, v) : v, count);
    });
  }
}
template <class T, class Y>
void normalise_typed(const NormPixels& x, const float* mean, const float* scale, const float* bias, bool silu,
                     void* y, int64_t y_stride) {
  Y* to = static_cast<Y*>(y);
  silu ? normalise<T, Y, true>(x, mean, scale, bias, to, y_stride)
       : normalise<T, Y, false>(x, mean, scale, bias, to, y_stride);
}
void normalise_channels(const NormPixels& x, const float* mean, const float* scale, const float* bias,
                        bool silu, void* y, int64_t y_stride, bool y_bf16) {
  if (x.bf16) return normalise_typed<uint16_t, uint16_t>(x, mean, scale, bias, silu, y, y_stride);
  y_bf16 ? normalise_typed<float, uint16_t>(x, mean, scale, bias, silu, y, y_stride)
         : normalise_typed<float, float>(x, mean, scale, bias, silu, y, y_stride);
}

// Sum over a row of term(vector); a short last vector goes through `part`, which must not count the lanes
// beyond it.
template <class T, class Term>
float sum_row(const T* x, int64_t cols, const Term& term) {
  Vec sum[4] = {};
  int64_t c = 0;
  for (; c + 4 * kLanes <= cols; c += 4 * kLanes)
    for (int j = 0; j < 4; ++j) sum[j] += term(load(x + c + j * kLanes));
  for (; c + kLanes <= cols; c += kLanes) sum[0] += term(load(x + c));
  float rest = 0;
  if (c < cols) {
    const Vec last = term(load_part(x + c, cols - c));
    for (int64_t j = 0; j < cols - c; ++j) rest += last[j];
  }
  return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3])) + rest;
}

template <class T, class Y>
void layer_norm_typed(const NormPixels& x, const float* gain, const float* bias, float eps, Y* y) {
  const float share = 1.0f / static_cast<float>(x.channels);
  for (int64_t i = 0; i < x.pixels; ++i) {
    const T* from = static_cast<const T*>(x.data) + i * x.stride;
    Y* to = y + i * x.stride;
    const float mean = sum_row(from, x.channels, [](Vec v) { return v; }) * share;
    const float variance =
        sum_row(from, x.channels, [mean](Vec v) { return (v - mean) * (v - mean); }) * share;
    const float scale = 1.0f / __builtin_sqrtf(variance + eps);
    for_vectors(x.channels, [&](int64_t c, int64_t count) {
      store_some(to + c,
                 (load_some(from + c, count) - mean) * scale * load_some(gain + c, count) +
                     load_some(bias + c, count),
                 count);
    });
  }
}
void layer_norm(const NormPixels& x, const float* gain, const float* bias, float eps, void* y, bool y_bf16) {
  if (x.bf16) return layer_norm_typed<uint16_t>(x, gain, bias, eps, static_cast<uint16_t*>(y));
  y_bf16 ? layer_norm_typed<float>(x, gain, bias, eps, static_cast<uint16_t*>(y))
         : layer_norm_typed<float>(x, gain, bias, eps, static_cast<float*>(y));
}

}  // namespace

extern const NormKernels kNormKernels;
const NormKernels kNormKernels = {channel_moments, normalise_channels, layer_norm};

}  // namespace rocm_sd::ROCM_SD_ISA
