// Channels: eight consecutive channels of one row, in float. What an epilogue works on between accumulators
// and memory. Verbs are free functions, destination first.
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

// An array and no struct: compilers keep an array in registers that they would leave in memory in a struct.
constexpr int kChannels = 8;
using Channels = float[kChannels];

// What memory has of them: all 8, in pieces of 16 bytes (wide), else the first `count`, one by one.
struct ChannelSpan {
  int count;
  bool wide;
};

ROCM_SD_DEVICE constexpr ChannelSpan all_channels() { return {kChannels, true}; }

// v[i] = f(v[i], other's [i] ...)
template <class F, class... Others>
ROCM_SD_DEVICE void map(Channels& v, const F& f, const Others&... others) {
  ROCM_SD_UNROLL
  for (int i = 0; i < kChannels; ++i) v[i] = f(v[i], others[i]...);
}
ROCM_SD_DEVICE void fill(Channels& v, float value) {
  ROCM_SD_UNROLL
  for (int i = 0; i < kChannels; ++i) v[i] = value;
}
ROCM_SD_DEVICE void copy(Channels& v, const Channels& other) {
  ROCM_SD_UNROLL
  for (int i = 0; i < kChannels; ++i) v[i] = other[i];
}
ROCM_SD_DEVICE void add(Channels& v, const Channels& other) {
  ROCM_SD_UNROLL
  for (int i = 0; i < kChannels; ++i) v[i] += other[i];
}
// v[i] *= factor * by[i]
ROCM_SD_DEVICE void scale(Channels& v, float factor, const Channels& by) {
  ROCM_SD_UNROLL
  for (int i = 0; i < kChannels; ++i) v[i] *= factor * by[i];
}

// ---- from and to memory ----

namespace channels {

template <class T>
struct alignas(16) Four {
  T x[4];
};

}  // namespace channels

// Channels that memory does not have become zero.
template <class T>
ROCM_SD_DEVICE void load(Channels& v, const T* from, ChannelSpan span) {
  if (span.wide) {
    if constexpr (sizeof(T) == 2) {
      const auto piece = *reinterpret_cast<const Vec8<T>*>(from);
      ROCM_SD_UNROLL
      for (int i = 0; i < 8; ++i) v[i] = to_float(piece.x[i]);
    } else {
      ROCM_SD_UNROLL
      for (int half = 0; half < 2; ++half) {
        const auto piece = reinterpret_cast<const channels::Four<T>*>(from)[half];
        ROCM_SD_UNROLL
        for (int i = 0; i < 4; ++i) v[4 * half + i] = to_float(piece.x[i]);
      }
    }
  } else {
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i) v[i] = i < span.count ? to_float(from[i]) : 0.0f;
  }
}
// A number for each of the channels `channel` + row(i) of the 16 from there on, and for its gate, `channels`
// later. Of channels behind the last one any.
template <int kCount, class Row>
ROCM_SD_DEVICE void load_pairs(float (&of_values)[kCount], float (&of_gates)[kCount], const float* from,
                               int channels, int channel, const Row& row) {
  const auto load_at = [&](const auto& at) {
    ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i) of_values[i] = from[at(i)];
    ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i) of_gates[i] = from[channels + at(i)];
  };
  if (channel + 16 <= channels)
    load_at([&](int i) { return channel + row(i); });
  else
    load_at([&](int i) { return channel + row(i) < channels ? channel + row(i) : channels - 1; });
}
// Adds the first `count`.
template <class T>
ROCM_SD_DEVICE void add_first(Channels& v, const T* from, int count) {
  ROCM_SD_UNROLL
  for (int i = 0; i < 8; ++i)
    if (i < count) v[i] += to_float(from[i]);
}
template <class T>
ROCM_SD_DEVICE void add(Channels& v, const Vec8<T>& piece) {
  ROCM_SD_UNROLL
  for (int i = 0; i < 8; ++i) v[i] += to_float(piece.x[i]);
}
template <class T>
ROCM_SD_DEVICE void store(T* to, const Channels& v, ChannelSpan span) {
  if (span.wide) {
    if constexpr (sizeof(T) == 2) {
      Vec8<T> piece;
      ROCM_SD_UNROLL
      for (int i = 0; i < 8; i += 2) store_pair(piece.x + i, v[i], v[i + 1]);
      *reinterpret_cast<Vec8<T>*>(to) = piece;
    } else {
      ROCM_SD_UNROLL
      for (int half = 0; half < 2; ++half) {
        channels::Four<T> piece;
        ROCM_SD_UNROLL
        for (int i = 0; i < 4; ++i) store(piece.x[i], v[4 * half + i]);
        reinterpret_cast<channels::Four<T>*>(to)[half] = piece;
      }
    }
  } else {
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i)
      if (i < span.count) store(to[i], v[i]);
  }
}

}  // namespace rocm_sd
