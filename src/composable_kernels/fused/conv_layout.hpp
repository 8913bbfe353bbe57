// Layouts of a convolution's operands: filters with k last, as the gather walks it, and pixels padded to
// whole 16-byte pieces.
// Problem   packed[n, (input, r, s, c)] = plain[n, input's first + c, r, s], zeros for channels that only the
//           padding has; the same back; padded[pixel, c] = x[pixel, c] or zero
// Mapping   one lane per piece of 16 bytes (plain: per element)
// Traffic   each operand once from memory
// Numerics  copies
// Limits    fewer than 2^63 elements
#pragma once

#include "composable_kernels/pack.hpp"

namespace rocm_sd {

struct FilterLayout {
  int64_t outputs;
  int32_t channels[2];  // of each input, in the plain filter
  int32_t padded[2];    // in the packed one
  int32_t block[2];     // channels that lie together in the packed one, a divisor of padded
  int32_t taps;         // filter_h * filter_w

  // Of channel c of an input under a tap, from where the input begins; `all` taps.
  ROCM_SD_DEVICE int64_t packed_at(int input, int64_t tap, int64_t c, int32_t all) const {
    const int64_t size = input ? block[1] : block[0];
    return (c / size * all + tap) * size + c % size;
  }
  // The inverse.
  ROCM_SD_DEVICE void unpacked_at(int input, int64_t k, int32_t all, int64_t& tap, int64_t& c) const {
    const int64_t size = input ? block[1] : block[0], row = k / size;
    tap = row % all;
    c = row / all * size + k % size;
  }
  ROCM_SD_DEVICE int64_t depth() const { return static_cast<int64_t>(taps) * (padded[0] + padded[1]); }
  ROCM_SD_DEVICE int64_t plain_depth() const {
    return static_cast<int64_t>(taps) * (channels[0] + channels[1]);
  }
};

template <class T>
struct FilterParams {
  FilterLayout layout;
  const T* from;
  T* to;
};

// index: of a piece of the packed filter; beyond the last, nothing happens.
template <class T>
ROCM_SD_DEVICE void conv_pack_body(const FilterParams<T>& p, int64_t index) {
  constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  const FilterLayout& l = p.layout;
  const int64_t first = index * kChunk;
  if (first >= l.outputs * l.depth()) return;
  const int64_t output = first / l.depth();
  int64_t k = first - output * l.depth();
  const int64_t of_first = static_cast<int64_t>(l.taps) * l.padded[0];
  const bool second = k >= of_first;
  if (second) k -= of_first;
  const int32_t channels = second ? l.channels[1] : l.channels[0];
  int64_t tap, c;
  l.unpacked_at(second ? 1 : 0, k, l.taps, tap, c);
  const T* from =
      p.from + output * l.plain_depth() + (second ? l.channels[0] : 0) * static_cast<int64_t>(l.taps);
  store_pack(p.to + first, pack_of<kChunk, T>(
                               [&](int i) { return c + i < channels ? from[(c + i) * l.taps + tap] : T{}; }));
}

// The four 2x2 filters that a 3x3 filter is on an image doubled by nearest neighbour (convolution.hpp):
// packed[phase, n, (block, r, s, c)], phase = 2 (row parity) + column parity. Of an output row of parity a
// the filter's row t falls on the image's row (t + 1 - a) / 2; weights that fall together are summed in float
// and rounded once. One input. index: of a piece of the packed filters.
template <class T>
ROCM_SD_DEVICE void conv_phases_body(const FilterParams<T>& p, int64_t index) {
  constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  const FilterLayout& l = p.layout;  // of the plain filter
  const int64_t first = index * kChunk, depth = int64_t{4} * l.padded[0];
  if (first >= 4 * l.outputs * depth) return;
  const int64_t row = first / depth, phase = row / l.outputs, output = row - phase * l.outputs;
  int64_t tap, c;
  l.unpacked_at(0, first - row * depth, 4, tap, c);
  Pack<T, kChunk> piece;
  for (int i = 0; i < kChunk; ++i) {
    float sum = 0;
    for (int t = 0; t < 9 && c + i < l.channels[0]; ++t) {
      const int64_t at = (t / 3 + 1 - phase / 2) / 2 * 2 + (t % 3 + 1 - phase % 2) / 2;
      if (at == tap) sum += to_float(p.from[(output * l.channels[0] + c + i) * 9 + t]);
    }
    store(piece.x[i], sum);
  }
  store_pack(p.to + first, piece);
}

// index: of an element of the plain filter.
template <class T>
ROCM_SD_DEVICE void conv_unpack_body(const FilterParams<T>& p, int64_t index) {
  const FilterLayout& l = p.layout;
  if (index >= l.outputs * l.plain_depth()) return;
  const int64_t output = index / l.plain_depth(), within = index - output * l.plain_depth();
  const int64_t c = within / l.taps, tap = within - c * l.taps;
  const int64_t of_first = static_cast<int64_t>(l.taps) * l.padded[0];
  const int64_t k = c < l.channels[0] ? l.packed_at(0, tap, c, l.taps)
                                      : of_first + l.packed_at(1, tap, c - l.channels[0], l.taps);
  p.to[index] = p.from[output * l.depth() + k];
}

template <class T>
struct PadParams {
  const T* x;  // [pixels, channels]
  T* y;        // [pixels, padded]
  int64_t pixels;
  int32_t channels, padded;
};

// index: of a piece of y.
template <class T>
ROCM_SD_DEVICE void conv_pad_body(const PadParams<T>& p, int64_t index) {
  constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  const int64_t first = index * kChunk;
  if (first >= p.pixels * p.padded) return;
  const int64_t pixel = first / p.padded, c = first - pixel * p.padded;
  store_pack(p.y + first, pack_of<kChunk, T>([&](int i) {
               return c + i < p.channels ? p.x[pixel * p.channels + c + i] : T{};
             }));
}

}  // namespace rocm_sd
