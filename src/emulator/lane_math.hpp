// Arithmetic of one lane: what vector and scalar operations compute, written so that a loop over lanes
// vectorises. Source of the semantics: AMD's RDNA3, RDNA4 and CDNA3 instruction set documents.
#pragma once

#include "emulator/lanes.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {

constexpr float kNanF = __builtin_nanf("");
constexpr double kNan = __builtin_nan("");

// IEEE minNum and maxNum with -0 < +0, as v_min and v_max give with IEEE mode on.
inline float min_num(float a, float b) {
  const float either_zero = cast<float>(cast<uint32_t>(a) | cast<uint32_t>(b));
  float r = a < b ? a : b;
  r = a == b ? either_zero : r;  // equal numbers differ only if both are zeros
  r = b != b ? a : r;
  return a != a ? b : r;
}
inline float max_num(float a, float b) {
  const float both_zero = cast<float>(cast<uint32_t>(a) & cast<uint32_t>(b));
  float r = a > b ? a : b;
  r = a == b ? both_zero : r;
  r = b != b ? a : r;
  return a != a ? b : r;
}
inline double min_num(double a, double b) {
  const double either_zero = cast<double>(cast<uint64_t>(a) | cast<uint64_t>(b));
  double r = a < b ? a : b;
  r = a == b ? either_zero : r;
  r = b != b ? a : r;
  return a != a ? b : r;
}
inline double max_num(double a, double b) {
  const double both_zero = cast<double>(cast<uint64_t>(a) & cast<uint64_t>(b));
  double r = a > b ? a : b;
  r = a == b ? both_zero : r;
  r = b != b ? a : r;
  return a != a ? b : r;
}
// IEEE 754-2019 minimum and maximum: NaN wins (gfx12).
template <class T>
inline T minimum(T a, T b) {
  return a != a ? a : b != b ? b : min_num(a, b);
}
template <class T>
inline T maximum(T a, T b) {
  return a != a ? a : b != b ? b : max_num(a, b);
}
// The median: with a NaN among them the least of the others.
template <class T>
inline T median(T a, T b, T c) {
  const T least = min_num(min_num(a, b), c);
  const T middle = max_num(min_num(a, b), min_num(max_num(a, b), c));
  return a != a || b != b || c != c ? least : middle;
}

inline float flush(float x) {  // a denormal becomes a zero of its sign
  return __builtin_fabsf(x) < 0x1p-126f ? cast<float>(cast<uint32_t>(x) & 0x80000000u) : x;
}

// 2^x, correctly rounded but for about one argument in a thousand; denormals are flushed on both sides.
inline float exp2_lane(float x) {
  const double clamped = x > 300.0f ? 300.0 : x < -300.0f ? -300.0 : static_cast<double>(x);
  const double shifted = clamped + 0x1.8p52;  // the integer nearest to x stands in the low bits
  const double f = clamped - (shifted - 0x1.8p52);
  const uint64_t n = cast<uint64_t>(shifted);
  double p = 1.3215486790144307e-06;  // ln(2)^k / k!, k = 8 ... 0
  p = p * f + 1.5252733804059841e-05;
  p = p * f + 1.5403530393381608e-04;
  p = p * f + 1.3333558146428443e-03;
  p = p * f + 9.6181291076284772e-03;
  p = p * f + 5.5504108664821580e-02;
  p = p * f + 2.4022650695910071e-01;
  p = p * f + 6.9314718055994531e-01;
  p = p * f + 1.0;
  const double scale = cast<double>((n + 1023) << 52);
  const float r = flush(static_cast<float>(p * scale));
  return x != x ? x : r;
}

// log2(x); denormal arguments count as zeros.
inline float log2_lane(float x) {
  const float a = flush(x);
  const uint64_t bits = cast<uint64_t>(static_cast<double>(a));
  const uint64_t above =
      bits - 0x3fe6a09e667f3bcdull;  // sqrt(1/2): the mantissa lies in [sqrt(1/2), sqrt(2))
  const double m = cast<double>(bits - (above & 0xfff0000000000000ull));
  const int32_t e = static_cast<int32_t>(static_cast<uint32_t>(above >> 32)) >> 20;
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  p = p * z + 1.0;
  float r = static_cast<float>(2.8853900817779268 * s * p + e);  // 2 / ln(2)
  r = a == __builtin_inff() ? a : r;
  r = a == 0.0f ? -__builtin_inff() : r;
  return !(a >= 0.0f) ? kNanF : r;
}

inline float rcp_lane(float x) { return flush(1.0f / flush(x)); }
inline float sqrt_lane(float x) { return __builtin_sqrtf(flush(x)); }
inline float rsq_lane(float x) {
  return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(flush(x))));
}

// sin and cos of a number of turns.
inline float sin_lane(float x) {
  if (!(__builtin_fabsf(x) < __builtin_inff())) return kNanF;
  const double turn = static_cast<double>(x) - __builtin_floor(x);
  return static_cast<float>(__builtin_sin(turn * 6.283185307179586));
}
inline float cos_lane(float x) {
  if (!(__builtin_fabsf(x) < __builtin_inff())) return kNanF;
  const double turn = static_cast<double>(x) - __builtin_floor(x);
  return static_cast<float>(__builtin_cos(turn * 6.283185307179586));
}

// x - floor(x), below 1: at most `most`. Of an infinity it is NaN.
inline float fract_lane(float x, float most = 0x1.fffffep-1f) {
  const float r = x - __builtin_floorf(x);
  return r > most ? most : r;
}
inline double fract_lane(double x) {
  const double r = x - __builtin_floor(x), most = 0x1.fffffffffffffp-1;
  return r > most ? most : r;
}

// a * b + c of f16 numbers as a float that rounds to f16 once: the product is exact in double, and so is the
// sum wherever it could tie. To float toward odd, so that the rounding to f16 that follows is the only one.
inline float fma_half(float a, float b, float c) {
  const double exact = static_cast<double>(a) * b + c;
  const float near = static_cast<float>(exact);
  const uint32_t bits = cast<uint32_t>(near);
  const bool inexact = static_cast<double>(near) != exact && exact == exact;
  const bool away = __builtin_fabs(static_cast<double>(near)) > __builtin_fabs(exact);
  return cast<float>(inexact ? ((bits - (away ? 1 : 0)) | 1) : bits);
}

inline int32_t frexp_exp(double x) {
  if (!(__builtin_fabs(x) < __builtin_inf()) || x == 0) return 0;
  int e;
  __builtin_frexp(x, &e);
  return e;
}
inline double frexp_mant(double x) {
  if (!(__builtin_fabs(x) < __builtin_inf())) return x;
  int e;
  return __builtin_frexp(x, &e);
}

inline float ldexp_lane(float x, int32_t n) {
  const int64_t e = n > 300 ? 300 : n < -300 ? -300 : n;
  return static_cast<float>(static_cast<double>(x) * cast<double>(static_cast<uint64_t>(e + 1023) << 52));
}
inline double ldexp_lane(double x, int32_t n) {
  return __builtin_ldexp(x, n > 5000 ? 5000 : n < -5000 ? -5000 : n);
}

// ---- conversions to integers: saturating, NaN gives 0 ----
inline int32_t to_i32(double x) {
  const double c = x > 2147483647.0 ? 2147483647.0 : x < -2147483648.0 ? -2147483648.0 : x;
  return static_cast<int32_t>(x != x ? 0.0 : c);
}
inline uint32_t to_u32(double x) {
  const double c = x > 4294967295.0 ? 4294967295.0 : x > 0.0 ? x : 0.0;
  return static_cast<uint32_t>(static_cast<int64_t>(c));
}
inline int32_t to_i16(float x) {
  const float c = x > 32767.0f ? 32767.0f : x < -32768.0f ? -32768.0f : x;
  return static_cast<int32_t>(x != x ? 0.0f : c);
}
inline uint32_t to_u16(float x) {
  const float c = x > 65535.0f ? 65535.0f : x > 0.0f ? x : 0.0f;
  return static_cast<uint32_t>(static_cast<int32_t>(c));
}

// ---- classes of numbers, the bits of v_cmp_class ----
inline uint32_t class_of(uint64_t bits, int exponent_bits, int mantissa_bits) {
  const bool negative = bits >> (exponent_bits + mantissa_bits) & 1;
  const uint64_t exponent = bits >> mantissa_bits & ((1ull << exponent_bits) - 1);
  const uint64_t mantissa = bits & ((1ull << mantissa_bits) - 1);
  if (exponent == (1ull << exponent_bits) - 1) {
    if (mantissa) return mantissa >> (mantissa_bits - 1) ? 2 : 1;
    return negative ? 4 : 0x200;
  }
  if (exponent == 0) return mantissa ? (negative ? 0x10 : 0x80) : (negative ? 0x20 : 0x40);
  return negative ? 8 : 0x100;
}

}  // namespace ROCM_SD_ISA
}  // namespace rocm_sd::emu
