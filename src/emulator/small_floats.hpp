// 8-bit floats: e4m3 (fp8) and e5m2 (bf8) in the OCP form that gfx12 uses. gfx942 uses the FNUZ form (one
// greater bias, no infinities, 0x80 is NaN), which `Fnuz` selects.
#pragma once

#include "emulator/lanes.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {

template <bool Bf8, bool Fnuz = false>
inline float f8_to_float(uint32_t bits) {
  constexpr int mantissa_bits = Bf8 ? 2 : 3, exponent_bits = Bf8 ? 5 : 4;
  constexpr int bias = (1 << (exponent_bits - 1)) - (Fnuz ? 0 : 1);
  const float sign = bits & 0x80 ? -1.0f : 1.0f;
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  if (Fnuz && bits == 0x80) return __builtin_nanf("");
  if (!Fnuz && Bf8 && exponent == 31) return mantissa ? __builtin_nanf("") : sign * __builtin_inff();
  if (!Fnuz && !Bf8 && (bits & 0x7f) == 0x7f) return __builtin_nanf("");
  const int shift = (exponent ? exponent : 1) - bias - mantissa_bits;
  const int whole = exponent ? mantissa | 1 << mantissa_bits : mantissa;
  return sign * static_cast<float>(whole) * cast<float>(static_cast<uint32_t>(shift + 127) << 23);
}

// To nearest even; what is too large saturates to the largest finite number, NaN stays NaN.
template <bool Bf8, bool Fnuz = false>
inline uint32_t float_to_f8(float value) {
  constexpr int mantissa_bits = Bf8 ? 2 : 3, exponent_bits = Bf8 ? 5 : 4;
  constexpr int bias = (1 << (exponent_bits - 1)) - (Fnuz ? 0 : 1);
  constexpr uint32_t largest = Fnuz ? 0x7f : Bf8 ? 0x7b : 0x7e;
  const uint32_t sign = cast<uint32_t>(value) >> 24 & 0x80;
  if (value != value) return Fnuz ? 0x80 : sign | 0x7f;
  const float magnitude = __builtin_fabsf(value);
  if (magnitude == __builtin_inff()) return Fnuz ? 0x80 : sign | (Bf8 ? 0x7c : largest);
  const int exponent = static_cast<int>(cast<uint32_t>(magnitude) >> 23) - 127;
  const int least = 1 - bias;
  const int unit = (exponent < least ? least : exponent) - mantissa_bits;  // of the last place
  if (unit > 100) return sign | largest;
  const float steps = __builtin_rintf(magnitude * cast<float>(static_cast<uint32_t>(127 - unit) << 23));
  const uint32_t n = static_cast<uint32_t>(steps);
  // Counting codes: each binade has 1 << mantissa_bits of them, and rounding up carries into the next.
  const uint32_t base = exponent < least ? 0 : static_cast<uint32_t>(exponent - least) << mantissa_bits;
  uint32_t code = base + n;
  if (code > largest) code = largest;
  if (Fnuz && code == 0) return 0;
  return sign | code;
}

}  // namespace ROCM_SD_ISA
}  // namespace rocm_sd::emu
