// Elements of 8 bits, which weights (and the activations that meet them) are stored in beside a scale per
// row: signed integers, and floats in OCP's e4m3 (OCP 8-bit Floating Point Specification, 2023).
// Numerics  values are stored within the finite range and never as a negative zero. The FNUZ form of e4m3
//           that gfx942 multiplies has no such codes either, and reads every other one as half its value: the
//           same bytes serve both, with a scale twice as large there.
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

struct Int8 {
  int8_t bits;
};
struct Fp8 {  // sign, 4 bits of exponent (bias 7), 3 of mantissa; 0x7f would be a NaN
  uint8_t bits;
};

// The largest magnitude that is stored. Int8: without -128, so that signs are alike.
template <class T>
inline constexpr float kEightBitMost = 127.0f;
template <>
inline constexpr float kEightBitMost<Fp8> = 448.0f;

// Rows whose largest magnitude is not above this are stored as zeros: the reciprocals of their scales would
// be infinite.
inline constexpr float kEightBitLeast = 1e-30f;

ROCM_SD_DEVICE float to_float(Int8 x) { return static_cast<float>(x.bits); }
// The bits are those of a binary16 that is 2^-8 times as large, subnormals too.
ROCM_SD_DEVICE float to_float(Fp8 x) {
  const auto bits = static_cast<uint16_t>((x.bits & 0x80) << 8 | (x.bits & 0x7f) << 7);
  return to_float(Half{bits}) * 256.0f;
}

// Rounds to nearest even; beyond the largest magnitude, to it. value must not be a NaN.
ROCM_SD_DEVICE void store(Int8& to, float value) {
  const float bounded = value > 127.0f ? 127.0f : value < -127.0f ? -127.0f : value;
  to.bits = static_cast<int8_t>(__builtin_rintf(bounded));
}
ROCM_SD_DEVICE void store(Fp8& to, float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value), magnitude = bits & 0x7fffffff;
  uint32_t code = 0;
  if (magnitude < 0x3c800000) {  // below 2^-6: steps of 2^-9
    code = static_cast<uint32_t>(__builtin_rintf(__builtin_bit_cast(float, magnitude) * 512.0f));
  } else {
    code = ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - ((127 - 7) << 3);
    if (code > 0x7e) code = 0x7e;
  }
  to.bits = static_cast<uint8_t>(code == 0 ? 0 : code | (bits >> 24 & 0x80));
}

}  // namespace rocm_sd
