// Vectors of floats at the width of the instruction set being compiled for, with the functions that epilogues
// need. Only for *_isa.cpp files: everything lives in the namespace ROCM_SD_ISA.
#pragma once

#include <cstdint>

namespace rocm_sd::ROCM_SD_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef int32_t VecInt __attribute__((vector_size(4 * kLanes)));
typedef uint32_t VecBits __attribute__((vector_size(4 * kLanes)));
typedef uint16_t VecHalf __attribute__((vector_size(2 * kLanes)));

// The same without a claim about alignment.
typedef float VecLoose __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef uint16_t VecHalfLoose __attribute__((vector_size(2 * kLanes), aligned(2), may_alias));

static inline Vec load(const float* p) { return *reinterpret_cast<const VecLoose*>(p); }
static inline void store(float* p, Vec v) { *reinterpret_cast<VecLoose*>(p) = v; }
static inline Vec splat(float x) { return x - Vec{}; }

static inline Vec load_bf16(const uint16_t* p) {
  const VecHalf half = *reinterpret_cast<const VecHalfLoose*>(p);
  return (Vec)(__builtin_convertvector(half, VecBits) << 16);
}
// Round to nearest even; a NaN stays one.
static inline void store_bf16(uint16_t* p, Vec v) {
  const VecBits bits = (VecBits)v;
  const VecBits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const VecBits nan = (bits >> 16) | 0x40u;
  *reinterpret_cast<VecHalfLoose*>(p) = __builtin_convertvector(v == v ? rounded : nan, VecHalf);
}

static inline Vec least(Vec a, Vec b) { return a < b ? a : b; }
static inline Vec most(Vec a, Vec b) { return a > b ? a : b; }

// e^x: x = n ln 2 + r with |r| <= ln(2)/2, e^r by its Taylor polynomial of degree 7 (remainder below 1e-8).
// Relative error below 3e-7; saturates outside [-87, 88]; a NaN gives a NaN.
static inline Vec exp_approx(Vec x) {
  const Vec clamped = most(least(x, splat(88.0f)), splat(-87.0f));
  const Vec shifted =
      clamped * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer in the low bits
  const Vec n = shifted - 12582912.0f;
  const Vec r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  Vec p = splat(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Vec scale = (Vec)((__builtin_convertvector(n, VecInt) + 127) << 23);
  return x == x ? p * scale : x;
}

static inline Vec sigmoid(Vec x) { return 1.0f / (1.0f + exp_approx(-x)); }

// The erf form. erfc(z) = e^(-z^2) t P(t) with t = 1 / (1 + 0.4 z), the shape of Abramowitz and Stegun,
// "Handbook of Mathematical Functions", 7.1.26; P is a least-squares fit of degree 6 whose absolute error is
// 8e-9 on z >= 0. Then gelu(x) = x - x erfc(z) / 2 for x >= 0 and x erfc(z) / 2 below, z = |x| / sqrt(2).
static inline Vec gelu(Vec x) {
  const Vec z = (x < 0.0f ? -x : x) * 0.70710678f;
  const Vec t = 1.0f / (1.0f + 0.4f * z);
  Vec p = splat(0.03029737498512848f);
  p = p * t - 0.34985482137724444f;
  p = p * t + 1.0152004171996407f;
  p = p * t - 0.7029162886930085f;
  p = p * t + 0.6696451780919798f;
  p = p * t + 0.0970925231553611f;
  p = p * t + 0.24053560911530872f;
  const Vec tail = 0.5f * x * (exp_approx(-z * z) * t * p);
  return x < 0.0f ? tail : x - tail;
}

}  // namespace rocm_sd::ROCM_SD_ISA
