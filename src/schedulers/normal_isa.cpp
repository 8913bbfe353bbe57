// Box-Muller over blocks of sixteen uniforms, in the exact arithmetic of PyTorch's CPU generator.
//
// PyTorch (aten/src/ATen/native/cpu/DistributionTemplates.h) fills tensors of 16 or more floats by Box-Muller
// with the polynomials of Cephes' logf, sinf and cosf, in AVX2 code whose products and sums the compiler
// contracted to fused multiply-adds. Which ones is part of the result, so each is written out here.
// Numerics: every operation below is an IEEE one on floats, so any instruction set gives the same bits.
#include "schedulers/normal_isa.hpp"

#include <bit>

namespace rocm_sd::ROCM_SD_ISA {
namespace {

constexpr int kLanes = 8;

inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float polynomial(float p0, float p1, float p2, float z) { return fma(fma(p0, z, p1), z, p2); }

// Natural logarithm of x in (0, 1]; Cephes logf (Moshier 1988): x = m * 2^e with m in [sqrt(1/2), sqrt(2)).
inline float log_cephes(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  float e = static_cast<float>(static_cast<int32_t>(bits >> 23) - 0x7f) + 1.0f;
  const float m = std::bit_cast<float>((bits & ~0x7f800000u) | 0x3f000000u);
  const bool low = m < 0.707106781186547524f;
  const float f = (m - 1.0f) + (low ? m : 0.0f);
  e -= low ? 1.0f : 0.0f;
  const float z = f * f;
  float y = polynomial(7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, f);
  y = polynomial(y, -1.2420140846e-1f, 1.4249322787e-1f, f);
  y = polynomial(y, -1.6668057665e-1f, 2.0000714765e-1f, f);
  y = polynomial(y, -2.4999993993e-1f, 3.3333331174e-1f, f) * f;
  y = fma(y, z, e * -2.12194440e-4f);
  y = fma(-0.5f, z, y);
  return fma(e, 0.693359375f, f + y);
}

// sin and cos of x in [0, 2 pi]; Cephes sinf and cosf: x = octants * pi/4 + r.
inline void sincos_cephes(float x, float& sine, float& cosine) {
  const int32_t octants = (static_cast<int32_t>(x * 1.27323954473516f) + 1) & ~1;
  const float y = static_cast<float>(octants);
  float r = fma(y, -0.78515625f, x);  // pi/4 in three parts
  r = fma(y, -2.4187564849853515625e-4f, r);
  r = fma(y, -3.77489497744594108e-8f, r);
  const float z = r * r;
  float c = polynomial(2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f, z) * z;
  c = fma(c, z, -0.5f * z) + 1.0f;
  float s = polynomial(-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f, z) * z;
  s = fma(s, r, r);
  const bool straight = (octants & 2) == 0;
  const float sin_sign = (octants & 4) != 0 ? -1.0f : 1.0f;
  const float cos_sign = ((octants - 2) & 4) == 0 ? -1.0f : 1.0f;
  sine = (straight ? s : c) * sin_sign;
  cosine = (straight ? c : s) * cos_sign;
}

}  // namespace

void box_muller_blocks(float* values, int64_t blocks) {
  constexpr float kTwoPi = 6.28318530717958647692f;
  for (int64_t block = 0; block < blocks; ++block) {
    float* u = values + block * 2 * kLanes;
    for (int lane = 0; lane < kLanes; ++lane) {
      const float radius = __builtin_sqrtf(-2.0f * log_cephes(1.0f - u[lane]));
      float sine, cosine;
      sincos_cephes(kTwoPi * u[lane + kLanes], sine, cosine);
      u[lane] = radius * cosine;
      u[lane + kLanes] = radius * sine;
    }
  }
}

}  // namespace rocm_sd::ROCM_SD_ISA
