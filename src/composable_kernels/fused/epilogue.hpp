// The epilogue of products (GEMM and convolution): what happens to 8 consecutive channels of one row between
// the accumulators and memory.
// Numerics  float throughout; one rounding, at the store
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

// In the order of kernels/epilogue.hpp.
enum class EpilogueActivation : int { kNone, kSilu, kGelu, kQuickGelu, kRelu };

// Whose results may be float: products of bf16, whose 8 bits are too few for what many layers add to.
template <class T>
inline constexpr bool kMayWiden = false;
template <>
inline constexpr bool kMayWiden<Bf16> = true;

// y = act(product + bias + shift + residual), rows [rows, channels] of y and residual dense or y_stride
// apart. Any extents; stores are 16 bytes wide where channels and y_stride are multiples of 8 elements.
template <class T>
struct EpilogueParams {
  T* y;               // under float_result of float
  const T* residual;  // at the places of y and of its type, or null
  const float* bias;  // [channels] or null
  const void* shift;  // [images, channels] of T or float, added to all rows of an image, or null
  int64_t y_stride;   // elements from row to row
  int64_t shift_stride;
  int rows, channels;  // of y
  int rows_per_image;  // used with shift
  bool shift_is_float;
  bool float_result;  // only where kMayWiden<T>
  EpilogueActivation act;
};

template <class Arch>
ROCM_SD_DEVICE float gelu(float v) {
  return 0.5f * v * Arch::erfc(-0.70710678f * v);
}

template <class Arch>
ROCM_SD_DEVICE void activate(EpilogueActivation act, float (&v)[8]) {
  const auto each = [&](const auto& function) {
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i) v[i] = function(v[i]);
  };
  switch (act) {
    case EpilogueActivation::kNone: break;
    case EpilogueActivation::kSilu:
      each([](float x) { return x * Arch::reciprocal(1.0f + Arch::exp(-x)); });
      break;
    case EpilogueActivation::kGelu: each([](float x) { return gelu<Arch>(x); }); break;
    case EpilogueActivation::kQuickGelu:
      each([](float x) { return x * Arch::reciprocal(1.0f + Arch::exp(-1.702f * x)); });
      break;
    case EpilogueActivation::kRelu: each([](float x) { return x < 0.0f ? 0.0f : x; }); break;
  }
}

// 8 elements; `wide`: from points to 16 bytes aligned to them; else only the first `count` exist.
template <class T>
ROCM_SD_DEVICE void load8(float (&v)[8], const T* from, bool wide, int count) {
  if (wide) {
    if constexpr (sizeof(T) == 2) {
      const auto piece = *reinterpret_cast<const Vec8<T>*>(from);
      ROCM_SD_UNROLL
      for (int i = 0; i < 8; ++i) v[i] = to_float(piece.x[i]);
    } else {
      struct alignas(16) Four {
        T x[4];
      };
      ROCM_SD_UNROLL
      for (int half = 0; half < 2; ++half) {
        const auto piece = reinterpret_cast<const Four*>(from)[half];
        ROCM_SD_UNROLL
        for (int i = 0; i < 4; ++i) v[4 * half + i] = to_float(piece.x[i]);
      }
    }
  } else {
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i) v[i] = i < count ? to_float(from[i]) : 0.0f;
  }
}
template <class T>
ROCM_SD_DEVICE void store8(T* to, const float (&v)[8], bool wide, int count) {
  if (wide) {
    if constexpr (sizeof(T) == 2) {
      Vec8<T> piece;
      ROCM_SD_UNROLL
      for (int i = 0; i < 8; i += 2) store_pair(piece.x + i, v[i], v[i + 1]);
      *reinterpret_cast<Vec8<T>*>(to) = piece;
    } else {
      struct alignas(16) Four {
        T x[4];
      };
      ROCM_SD_UNROLL
      for (int half = 0; half < 2; ++half) {
        Four piece;
        ROCM_SD_UNROLL
        for (int i = 0; i < 4; ++i) store(piece.x[i], v[4 * half + i]);
        reinterpret_cast<Four*>(to)[half] = piece;
      }
    }
  } else {
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i)
      if (i < count) store(to[i], v[i]);
  }
}

// Whether the 8 channels from `channel` on are all there and lie in 16-byte pieces.
template <class T>
ROCM_SD_DEVICE bool epilogue_is_wide(const EpilogueParams<T>& p, int channel) {
  return channel + 8 <= p.channels && p.channels % 8 == 0 && p.y_stride % 8 == 0;
}

// The epilogue of a tile whose first row and channel are given: operands() loads what does not depend on the
// product, the call finishes channels channel .. channel + 7 of a row and drops what lies outside y.
template <class Arch, class T>
struct EpilogueFinish {
  const EpilogueParams<T>& p;
  int first_row, first_channel;

  ROCM_SD_DEVICE bool is_float() const {
    if constexpr (kMayWiden<T>) return p.float_result;
    return false;
  }

  struct Operands {
    float sum[8];      // bias and shift, and a residual of float
    Vec8<T> residual;  // of wide pieces
  };

  ROCM_SD_DEVICE Operands operands(int row, int channel) const {
    row += first_row;
    channel += first_channel;
    Operands e{};
    const int count = p.channels - channel;
    if (row >= p.rows || count <= 0) return e;
    const bool wide = epilogue_is_wide(p, channel);
    if (p.bias) load8(e.sum, p.bias + channel, wide, count);
    if (p.shift) {
      float term[8];
      const int64_t at = row / p.rows_per_image * p.shift_stride + channel;
      // A slice of a wider table may begin anywhere.
      const auto load = [&](const auto* from) {
        load8(term, from, wide && reinterpret_cast<uintptr_t>(from) % 16 == 0, count);
      };
      if (p.shift_is_float)
        load(static_cast<const float*>(p.shift) + at);
      else
        load(static_cast<const T*>(p.shift) + at);
      ROCM_SD_UNROLL
      for (int i = 0; i < 8; ++i) e.sum[i] += term[i];
    }
    if (is_float()) {
      if (!p.residual) return e;
      float term[8];
      load8(term, reinterpret_cast<const float*>(p.residual) + row * p.y_stride + channel, wide, count);
      ROCM_SD_UNROLL
      for (int i = 0; i < 8; ++i) e.sum[i] += term[i];
    } else if (p.residual && wide) {
      e.residual = *reinterpret_cast<const Vec8<T>*>(p.residual + row * p.y_stride + channel);
    }
    return e;
  }
  ROCM_SD_DEVICE void operator()(int row, int channel, float (&v)[8], const Operands& e) const {
    row += first_row;
    channel += first_channel;
    const int count = p.channels - channel;
    if (row >= p.rows || count <= 0) return;
    const bool wide = epilogue_is_wide(p, channel);
    const int64_t at = row * p.y_stride + channel;
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i) v[i] += e.sum[i];
    if (is_float()) {  // the residual is in the sum
      activate<Arch>(p.act, v);
      return store8(reinterpret_cast<float*>(p.y) + at, v, wide, count);
    }
    if (p.residual && wide) {
      ROCM_SD_UNROLL
      for (int i = 0; i < 8; ++i) v[i] += to_float(e.residual.x[i]);
    } else if (p.residual) {
      ROCM_SD_UNROLL
      for (int i = 0; i < 8; ++i)
        if (i < count) v[i] += to_float(p.residual[at + i]);
    }
    activate<Arch>(p.act, v);
    store8(p.y + at, v, wide, count);
  }
};

// The same for one piece, counted from y's first row and channel.
template <class Arch, class T>
ROCM_SD_DEVICE void finish_epilogue(const EpilogueParams<T>& p, int row, int channel, float (&v)[8]) {
  const EpilogueFinish<Arch, T> finish{p, 0, 0};
  finish(row, channel, v, finish.operands(row, channel));
}

// GEGLU: y = (v + bias) gelu(gate + gate bias); the gates' biases follow the values'. The rest of the
// epilogue is not taken.
template <class Arch, class T>
struct GatedFinish {
  const EpilogueParams<T>& p;
  int first_row, first_channel;

  struct Operands {
    float bias[8], gate_bias[8];
  };

  ROCM_SD_DEVICE Operands operands(int, int channel) const {
    channel += first_channel;
    Operands e{};
    const int count = p.channels - channel;
    if (!p.bias || count <= 0) return e;
    load8(e.bias, p.bias + channel, epilogue_is_wide(p, channel), count);
    load8(e.gate_bias, p.bias + p.channels + channel, epilogue_is_wide(p, channel), count);
    return e;
  }
  ROCM_SD_DEVICE void operator()(int row, int channel, float (&v)[8], float (&gate)[8],
                                 const Operands& e) const {
    row += first_row;
    channel += first_channel;
    const int count = p.channels - channel;
    if (row >= p.rows || count <= 0) return;
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i) v[i] = (v[i] + e.bias[i]) * gelu<Arch>(gate[i] + e.gate_bias[i]);
    store8(p.y + row * p.y_stride + channel, v, epilogue_is_wide(p, channel), count);
  }
};
template <class Arch, class T>
ROCM_SD_DEVICE void finish_gated(const EpilogueParams<T>& p, int row, int channel, float (&v)[8],
                                 float (&gate)[8]) {
  const GatedFinish<Arch, T> finish{p, 0, 0};
  finish(row, channel, v, gate, finish.operands(row, channel));
}

// A split product's partial sums: [rows][channels] floats, dense.
ROCM_SD_DEVICE void store_partial(float* partial, int rows, int channels, int row, int channel,
                                  const float (&v)[8]) {
  const int count = channels - channel;
  if (row >= rows || count <= 0) return;
  store8(partial + static_cast<int64_t>(row) * channels + channel, v, count >= 8 && channels % 4 == 0, count);
}

}  // namespace rocm_sd
