// The epilogue of products (GEMM and convolution): what happens to 8 consecutive channels of one row between
// the accumulators and memory.
// Numerics  float throughout; one rounding, at the store
#pragma once

#include "composable_kernels/tile/channels.hpp"

namespace rocm_sd {

// In the order of kernels/epilogue.hpp.
enum class EpilogueActivation : int { kNone, kSilu, kGelu, kQuickGelu, kRelu };

// Whose results may be float: products of bf16, whose 8 bits are too few for what many layers add to.
template <class T>
inline constexpr bool kMayWiden = false;
template <>
inline constexpr bool kMayWiden<Bf16> = true;

// y = act(scale * (product + bias + shift) + residual), and of a convolution with slopes, whose act is kNone,
// values below zero times their channel's slope; rows [rows, channels] of y and residual dense or y_stride
// apart. Any extents; stores are 16 bytes wide where channels and y_stride are multiples of 8
// elements.
template <class T>
struct EpilogueParams {
  T* y;               // under float_result of float
  const T* residual;  // at the places of y and of its type, or null
  const float* bias;  // [channels] or null
  const void* shift;  // [images, channels] of T or float, added to all rows of an image, or null
  int64_t y_stride;   // elements from row to row
  int64_t shift_stride;
  const float* scale;     // [rows / rows_per_scale, channels or 1], or null; not of GEGLU
  int rows_per_scale;     // rows that share factors
  int factors_per_scale;  // `channels`, or 1 for all channels
  int rows, channels;     // of y
  int rows_per_image;     // used with shift
  bool shift_is_float;
  bool float_result;  // only where kMayWiden<T>
  EpilogueActivation act;
  const float* slopes;  // [channels] or null; of convolutions
};

// Whether the 8 channels from `channel` on are all there and lie in 16-byte pieces.
template <class T>
ROCM_SD_DEVICE bool epilogue_is_wide(const EpilogueParams<T>& p, int channel) {
  return channel + 8 <= p.channels && p.channels % 8 == 0 && p.y_stride % 8 == 0;
}

// v times the normal distribution at v, for results of type T: max(v, 0) - |v| Q(|v|), Q the distribution's
// upper tail. Of 16 bits without a choice by v, in a fifth of erfc's instructions: log2 Q is nearly a
// parabola, and the polynomial its minimax fit on [0, 6.2], to 5.5e-6 below 4.2 and 1e-4 above, and falls on
// from there. Relative error 4e-6 above -4, 8e-5 above -6, where the result is below 6e-9. NaN for an
// infinity.
template <class Arch, class T>
ROCM_SD_DEVICE float gelu(float v) {
  if constexpr (sizeof(T) != 2) return 0.5f * v * Arch::erfc(-0.70710678f * v);
  const float size = Arch::abs(v);
  float log_tail = -1.66952793e-6f;
  log_tail = log_tail * size + 5.87698269e-5f;
  log_tail = log_tail * size - 9.12065851e-4f;
  log_tail = log_tail * size + 8.44989251e-3f;
  log_tail = log_tail * size - 0.0538694151f;
  log_tail = log_tail * size - 0.458529502f;
  log_tail = log_tail * size - 1.15123427f;
  log_tail = log_tail * size - 0.999995947f;
  return Arch::max(v, 0.0f) - size * Arch::exp2(log_tail);
}

template <class Arch, class T>
ROCM_SD_DEVICE void activate(EpilogueActivation act, Channels& v) {
  switch (act) {
    case EpilogueActivation::kNone: break;
    case EpilogueActivation::kSilu:
      map(v, [](float x) { return x * Arch::reciprocal(1.0f + Arch::exp(-x)); });
      break;
    case EpilogueActivation::kGelu: map(v, [](float x) { return gelu<Arch, T>(x); }); break;
    case EpilogueActivation::kQuickGelu:
      map(v, [](float x) { return x * Arch::reciprocal(1.0f + Arch::exp(-1.702f * x)); });
      break;
    case EpilogueActivation::kRelu: map(v, [](float x) { return x < 0.0f ? 0.0f : x; }); break;
  }
}

// Values below zero times their channels' slopes: 8 channels from `channel` on.
template <class T>
ROCM_SD_DEVICE void apply_slopes(const EpilogueParams<T>& p, int channel, Channels& v, ChannelSpan span) {
  Channels slopes;
  load(slopes, p.slopes + channel, span);
  map(v, [](float x, float slope) { return x < 0.0f ? x * slope : x; }, slopes);
}

// What the scale makes of 8 channels of a row, and the residual after it. A scale is rare: nothing is asked
// for ahead.
template <class T>
ROCM_SD_DEVICE void scale_and_add(const EpilogueParams<T>& p, int row, int channel, Channels& v,
                                  ChannelSpan span) {
  Channels term;
  const float* const factors = p.scale + int64_t{row / p.rows_per_scale} * p.factors_per_scale;
  if (p.factors_per_scale == 1)
    fill(term, factors[0]);
  else
    load(term, factors + channel, span);
  map(v, [](float x, float s) { return x * s; }, term);
  if (!p.residual) return;
  const int64_t at = row * p.y_stride + channel;
  bool is_float = false;
  if constexpr (kMayWiden<T>) is_float = p.float_result;
  if (is_float)
    load(term, reinterpret_cast<const float*>(p.residual) + at, span);
  else
    load(term, p.residual + at, span);
  add(v, term);
}

// The epilogue of a tile whose first row and channel are given: operands() loads what does not depend on the
// product, the call finishes channels channel .. channel + 7 of a row and drops what lies outside y. kSlopes:
// whether there may be slopes.
template <class Arch, class T, bool kSlopes = false>
struct EpilogueFinish {
  const EpilogueParams<T>& p;
  int first_row, first_channel;

  struct Operands {
    Channels sum;      // bias and shift, and a residual of float
    Vec8<T> residual;  // of wide pieces
  };

  ROCM_SD_DEVICE Operands operands(int row, int channel) const {
    row += first_row;
    channel += first_channel;
    Operands e{};
    const int count = p.channels - channel;
    if (row >= p.rows || count <= 0) return e;
    const ChannelSpan span{count, epilogue_is_wide(p, channel)};
    if (p.bias) load(e.sum, p.bias + channel, span);
    if (p.shift) add_shift(e.sum, row, channel, span);
    if (p.scale) return e;  // before the residual
    if (is_float()) {
      if (!p.residual) return e;
      Channels term;
      load(term, reinterpret_cast<const float*>(p.residual) + row * p.y_stride + channel, span);
      add(e.sum, term);
    } else if (p.residual && span.wide) {
      e.residual = *reinterpret_cast<const Vec8<T>*>(p.residual + row * p.y_stride + channel);
    }
    return e;
  }
  ROCM_SD_DEVICE void operator()(int row, int channel, Channels& v, const Operands& e) const {
    row += first_row;
    channel += first_channel;
    const int count = p.channels - channel;
    if (row >= p.rows || count <= 0) return;
    const ChannelSpan span{count, epilogue_is_wide(p, channel)};
    const int64_t at = row * p.y_stride + channel;
    add(v, e.sum);
    if (p.scale) scale_and_add(p, row, channel, v, span);
    if (is_float()) {  // the residual is in the sum
      act(channel, v, span);
      return store(reinterpret_cast<float*>(p.y) + at, v, span);
    }
    if (p.residual && span.wide)
      add(v, e.residual);  // zeros, if there is a scale
    else if (p.residual && !p.scale)
      add_first(v, p.residual + at, span.count);
    act(channel, v, span);
    store(p.y + at, v, span);
  }

 private:
  ROCM_SD_DEVICE void act(int channel, Channels& v, ChannelSpan span) const {
    if constexpr (kSlopes)
      if (p.slopes) return apply_slopes(p, channel, v, span);
    activate<Arch, T>(p.act, v);
  }
  ROCM_SD_DEVICE bool is_float() const {
    if constexpr (kMayWiden<T>) return p.float_result;
    return false;
  }
  ROCM_SD_DEVICE void add_shift(Channels& sum, int row, int channel, ChannelSpan span) const {
    Channels term;
    const int64_t at = row / p.rows_per_image * p.shift_stride + channel;
    // A slice of a wider table may begin anywhere.
    const auto load_from = [&](const auto* from) {
      load(term, from, {span.count, span.wide && reinterpret_cast<uintptr_t>(from) % 16 == 0});
    };
    if (p.shift_is_float)
      load_from(static_cast<const float*>(p.shift) + at);
    else
      load_from(static_cast<const T*>(p.shift) + at);
    add(sum, term);
  }
};

// The same for one piece, counted from y's first row and channel.
template <class Arch, bool kSlopes = false, class T>
ROCM_SD_DEVICE void finish_epilogue(const EpilogueParams<T>& p, int row, int channel, Channels& v) {
  const EpilogueFinish<Arch, T, kSlopes> finish{p, 0, 0};
  finish(row, channel, v, finish.operands(row, channel));
}

// GEGLU: y = (v + bias) gelu(gate + gate bias); the gates' biases follow the values'. The rest of the
// epilogue is not taken.
template <class Arch, class T>
struct GatedFinish {
  const EpilogueParams<T>& p;
  int first_row, first_channel;

  struct Operands {
    Channels bias, gate_bias;
  };

  ROCM_SD_DEVICE Operands operands(int, int channel) const {
    channel += first_channel;
    Operands e{};
    const int count = p.channels - channel;
    if (!p.bias || count <= 0) return e;
    load(e.bias, p.bias + channel, {count, epilogue_is_wide(p, channel)});
    load(e.gate_bias, p.bias + p.channels + channel, {count, epilogue_is_wide(p, channel)});
    return e;
  }
  static ROCM_SD_DEVICE float gated(float value, float bias, float gate, float gate_bias) {
    return (value + bias) * gelu<Arch, T>(gate + gate_bias);
  }
  ROCM_SD_DEVICE void operator()(int row, int channel, Channels& v, Channels& gate, const Operands& e) const {
    map(v, gated, e.bias, gate, e.gate_bias);
    stored()(row, channel, v);
  }

  // For accumulators that are gated where they lie (tile/output.hpp).
  template <int kCount>
  struct GateTerms {
    float bias[kCount], gate_bias[kCount];
  };
  // Of channels `channel` + row(i) of the 16 from there on. Any numbers for those that y does not have.
  template <int kCount, class Row>
  ROCM_SD_DEVICE GateTerms<kCount> gate_terms(int channel, const Row& row) const {
    GateTerms<kCount> out{};
    if (p.bias) load_pairs(out.bias, out.gate_bias, p.bias, p.channels, first_channel + channel, row);
    return out;
  }
  // What becomes of two sums, the i-th of the terms' channels and row `row` of the tile.
  template <int kCount>
  ROCM_SD_DEVICE float gate(float value, float gate, const GateTerms<kCount>& terms, int i, int) const {
    return gated(value, terms.bias[i], gate, terms.gate_bias[i]);
  }
  // What stores gated values.
  struct Stored {
    const EpilogueParams<T>& p;
    int first_row, first_channel;

    ROCM_SD_DEVICE void operator()(int row, int channel, const Channels& v) const {
      row += first_row;
      channel += first_channel;
      const int count = p.channels - channel;
      if (row >= p.rows || count <= 0) return;
      store(p.y + row * p.y_stride + channel, v, {count, epilogue_is_wide(p, channel)});
    }
  };
  ROCM_SD_DEVICE Stored stored() const { return {p, first_row, first_channel}; }
};
template <class Arch, class T>
ROCM_SD_DEVICE void finish_gated(const EpilogueParams<T>& p, int row, int channel, Channels& v,
                                 Channels& gate) {
  const GatedFinish<Arch, T> finish{p, 0, 0};
  finish(row, channel, v, gate, finish.operands(row, channel));
}

// A split product's partial sums: [rows][channels] floats, dense.
ROCM_SD_DEVICE void store_partial(float* partial, int rows, int channels, int row, int channel,
                                  const Channels& v) {
  const int count = channels - channel;
  if (row >= rows || count <= 0) return;
  store(partial + static_cast<int64_t>(row) * channels + channel, v,
        {count, count >= 8 && channels % 4 == 0});
}

}  // namespace rocm_sd
