// Channels: eight consecutive channels of one row, in float. What an epilogue works on between accumulators
// and memory. Verbs are free functions, destination first.
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

struct Channels {
  static constexpr int kCount = 8;
  float x[kCount];
};

// What memory has of them: all 8, in pieces of 16 bytes (wide), else the first `count`, one by one.
struct ChannelSpan {
  int count;
  bool wide;
};

ROCM_SD_DEVICE void operator+=(Channels& v, const Channels& other) {
  ROCM_SD_UNROLL
  for (int i = 0; i < Channels::kCount; ++i) v.x[i] += other.x[i];
}
// v[i] *= factor * by[i]
ROCM_SD_DEVICE void scale(Channels& v, float factor, const Channels& by) {
  ROCM_SD_UNROLL
  for (int i = 0; i < Channels::kCount; ++i) v.x[i] *= factor * by.x[i];
}
// v[i] = f(v[i])
template <class F>
ROCM_SD_DEVICE void map(Channels& v, const F& f) {
  ROCM_SD_UNROLL
  for (int i = 0; i < Channels::kCount; ++i) v.x[i] = f(v.x[i]);
}
// v[i] = f(v[i], other[i])
template <class F>
ROCM_SD_DEVICE void map(Channels& v, const Channels& other, const F& f) {
  ROCM_SD_UNROLL
  for (int i = 0; i < Channels::kCount; ++i) v.x[i] = f(v.x[i], other.x[i]);
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
  if (!span.wide) {
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i) v.x[i] = i < span.count ? to_float(from[i]) : 0.0f;
  } else if constexpr (sizeof(T) == 2) {
    const auto piece = *reinterpret_cast<const Vec8<T>*>(from);
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i) v.x[i] = to_float(piece.x[i]);
  } else {
    ROCM_SD_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto piece = reinterpret_cast<const channels::Four<T>*>(from)[half];
      ROCM_SD_UNROLL
      for (int i = 0; i < 4; ++i) v.x[4 * half + i] = to_float(piece.x[i]);
    }
  }
}
// Adds those that memory has.
template <class T>
ROCM_SD_DEVICE void add(Channels& v, const T* from, int count) {
  ROCM_SD_UNROLL
  for (int i = 0; i < 8; ++i)
    if (i < count) v.x[i] += to_float(from[i]);
}
template <class T>
ROCM_SD_DEVICE void add(Channels& v, const Vec8<T>& piece) {
  ROCM_SD_UNROLL
  for (int i = 0; i < 8; ++i) v.x[i] += to_float(piece.x[i]);
}
template <class T>
ROCM_SD_DEVICE void store(T* to, const Channels& v, ChannelSpan span) {
  if (!span.wide) {
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i)
      if (i < span.count) store(to[i], v.x[i]);
  } else if constexpr (sizeof(T) == 2) {
    Vec8<T> piece;
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; i += 2) store_pair(piece.x + i, v.x[i], v.x[i + 1]);
    *reinterpret_cast<Vec8<T>*>(to) = piece;
  } else {
    ROCM_SD_UNROLL
    for (int half = 0; half < 2; ++half) {
      channels::Four<T> piece;
      ROCM_SD_UNROLL
      for (int i = 0; i < 4; ++i) store(piece.x[i], v.x[4 * half + i]);
      reinterpret_cast<channels::Four<T>*>(to)[half] = piece;
    }
  }
}

}  // namespace rocm_sd
