// Functions of vectors of floats: exponential, hyperbolic tangent and the activations. Only for *_isa.cpp
// files. Errors below are the worst seen against double over all float arguments (simd_math_test.cpp checks
// them).
#pragma once

#include "kernels/simd.hpp"

namespace rocm_sd::ROCM_SD_ISA {

// e^x within 2 units in the last place (subnormal results: one step of theirs); 0 and infinity where float
// ends. x = n ln 2 + r with |r| <= ln(2) / 2; e^r by its Taylor polynomial of degree 7 (remainder 5e-9); 2^n
// in two factors, so that subnormal results are rounded once.
static inline Vec exp(Vec x) {
  const Vec clamped = vmin(splat(89.0f), vmax(splat(-104.0f), x));  // keeps a NaN
  const Vec shifted = clamped * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the nearest integer in the low bits
  const Vec n = shifted - 12582912.0f;
  const Vec r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts, the first of 9 bits
  Vec p = splat(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r * r + r;
  p = p + 1.0f;
  const VecInt whole = (VecInt)shifted - 0x4b400000;  // n
  const VecInt half = whole >> 1;
  const Vec scaled = p * (Vec)((half + 127) << 23) * (Vec)((whole - half + 127) << 23);
  return x == x ? scaled : x;
}

// 2^x for x <= 0; exactly 0 from -127 down, so that what softmax hides weighs nothing. Minimax polynomial of
// degree 5 on [-1/2, 1/2], relative error 2e-7 with the rounding; the coarse ones, of degree 3, 1.1e-4.
static inline Vec exp2_nonpositive(Vec x) {
  x = vmax(splat(-127.0f), x);
  const Vec shifted = x + 12582912.0f;  // 1.5 * 2^23: the nearest integer in the low bits
  const Vec f = x - (shifted - 12582912.0f);
  Vec p = splat(0.00132647f);
  p = p * f + 0.00967151f;
  p = p * f + 0.05550734f;
  p = p * f + 0.24022242f;
  p = p * f + 0.69314698f;
  p = p * f + 1.0f;
  return (Vec)((VecInt)p + ((VecInt)shifted << 23));
}
static inline Vec exp2_coarse(Vec x) {  // |x| <= 127
  const Vec shifted = x + 12582912.0f;
  const Vec f = x - (shifted - 12582912.0f);
  Vec p = splat(0.05500893f);
  p = p * f + 0.24221096f;
  p = p * f + 0.69328293f;
  p = p * f + 1.0f;  // or 2^-127 would not vanish
  return (Vec)((VecInt)p + ((VecInt)shifted << 23));
}
static inline Vec exp2_nonpositive_coarse(Vec x) { return exp2_coarse(vmax(splat(-127.0f), x)); }

// tanh x within 3 units in the last place: an odd polynomial below 5/8, else 1 - 2 / (e^2x + 1).
static inline Vec tanh(Vec x) {
  const Vec a = vabs(x), s = x * x;
  Vec p = splat(-0.00570117f);  // least squares for (tanh x - x) / x^3 in x^2
  p = p * s + 0.02063581f;
  p = p * s - 0.05373875f;
  p = p * s + 0.13331431f;
  p = p * s - 0.33333282f;
  const Vec small = x + x * s * p;
  const Vec tail = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  const Vec large = (Vec)((VecBits)tail | ((VecBits)x & 0x80000000u));
  const Vec y = a < 0.625f ? small : large;
  return x == x ? y : x;
}

static inline Vec silu(Vec x) { return x / (1.0f + exp(-x)); }
// For results that are then rounded to bf16 (2e-3): relative error 2e-4, and 1e-35 where e^x vanishes.
static inline Vec silu_coarse(Vec x) {
  const Vec divisor = 1.0f + exp2_coarse(vmin(splat(126.0f), vmax(splat(-126.0f), x * -1.44269504f)));
#if defined(__AVX512F__)  // within 2^-14, and an eighth of a division's time
  return x * (Vec)_mm512_maskz_rcp14_ps(kAllLanes, (__m512)divisor);
#else
  return x / divisor;
#endif
}
static inline Vec quick_gelu(Vec x) { return x / (1.0f + exp(-1.702f * x)); }

// x (1 + erf(x / sqrt 2)) / 2, absolute error below 3e-7 (|x| + 1). With z = |x| / sqrt 2,
// erfc z = e^(-z^2) P(t), t = 1 / (1 + 0.4 z): the shape of Abramowitz and Stegun, 7.1.26, with a minimax
// polynomial of degree 8 for the scaled function (relative error 1.2e-7 for z <= 10).
static inline Vec gelu(Vec x) {
  const Vec z = vabs(x) * 0.70710678f;
  const Vec t = 1.0f / (1.0f + 0.4f * z);
  Vec p = splat(7.06828003e-02f);
  p = p * t - 3.81034635e-01f;
  p = p * t + 6.66245554e-01f;
  p = p * t - 3.66443616e-01f;
  p = p * t + 4.14481145e-01f;
  p = p * t + 1.31659082e-01f;
  p = p * t + 2.40217208e-01f;
  p = p * t + 2.24121445e-01f;
  p = p * t + 7.08981012e-05f;
  const Vec tail = 0.5f * x * (exp(-z * z) * p);
  return x < 0.0f ? tail : x - (x > 20.0f ? Vec{} : tail);  // infinity times the vanished tail is no number
}

}  // namespace rocm_sd::ROCM_SD_ISA
