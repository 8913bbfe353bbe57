// What the double-precision references share (*_ref.cpp): slow, plain, and shared with no kernel.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "base/dtype.hpp"
#include "kernels/epilogue.hpp"

namespace rocm_sd::ref {

// Element i of an array of f32, bf16, f16, f8e4m3, i8 or i32.
inline double load(const void* data, DType type, int64_t i) {
  switch (type) {
    case DType::kF32: return static_cast<const float*>(data)[i];
    case DType::kBF16: return bf16_to_float(static_cast<const uint16_t*>(data)[i]);
    case DType::kF8E4M3: return f8e4m3_to_float(static_cast<const uint8_t*>(data)[i]);
    case DType::kI8: return static_cast<const int8_t*>(data)[i];
    case DType::kI32: return static_cast<const int32_t*>(data)[i];
    default: return f16_to_float(static_cast<const uint16_t*>(data)[i]);
  }
}

inline void store(void* data, DType type, int64_t i, double value) {
  const float rounded = static_cast<float>(value);
  switch (type) {
    case DType::kF32: static_cast<float*>(data)[i] = rounded; return;
    case DType::kBF16: static_cast<uint16_t*>(data)[i] = float_to_bf16(rounded); return;
    default: static_cast<uint16_t*>(data)[i] = float_to_f16(rounded); return;
  }
}

inline double activated(double v, Activation act) {
  switch (act) {
    case Activation::kNone: return v;
    case Activation::kSilu: return v / (1.0 + std::exp(-v));
    case Activation::kGelu: return v * 0.5 * (1.0 + std::erf(v / std::numbers::sqrt2));
    case Activation::kQuickGelu: return v / (1.0 + std::exp(-1.702 * v));
    case Activation::kRelu: return v > 0 ? v : 0;
  }
  return v;
}

}  // namespace rocm_sd::ref
