// Vectors of floats as wide as the instruction set being compiled for. Only for *_isa.cpp files: everything
// is static and in the namespace ROCM_SD_ISA, and nothing of the standard library is included.
#pragma once

#include <cstdint>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

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

#if defined(__AVX512F__)
constexpr __mmask16 kAllLanes = 0xffff;  // GCC 12 warns of the header's own code in what takes no mask
#endif

static inline Vec splat(float x) { return x - Vec{}; }
static inline Vec load(const float* p) { return *reinterpret_cast<const VecLoose*>(p); }
static inline void store(float* p, Vec v) { *reinterpret_cast<VecLoose*>(p) = v; }

// bf16 is the upper half of a float. Stores round to nearest even and keep a NaN one.
static inline Vec load(const uint16_t* p) {
#if defined(__AVX512F__)  // GCC 12 converts in two halves
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return (Vec)((VecBits)_mm512_maskz_cvtepu16_epi32(kAllLanes, half) << 16);
#else
  const VecHalf half = *reinterpret_cast<const VecHalfLoose*>(p);
  return (Vec)(__builtin_convertvector(half, VecBits) << 16);
#endif
}
static inline void store(uint16_t* p, Vec v) {
#if defined(__AVX512BF16__)
  const __m256bh half = _mm512_cvtneps_pbh((__m512)v);  // makes zeros of subnormals
  __builtin_memcpy(p, &half, sizeof(half));
#else
  const VecBits bits = (VecBits)v;
  const VecBits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const VecBits nan = (bits >> 16) | 0x40u;
  *reinterpret_cast<VecHalfLoose*>(p) = __builtin_convertvector(v == v ? rounded : nan, VecHalf);
#endif
}

// The first `count` < kLanes elements; the others are zero, or are left alone.
template <class T>
static inline Vec load_part(const T* p, int64_t count) {
  T buffer[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) buffer[i] = p[i];
  return load(buffer);
}
template <class T>
static inline void store_part(T* p, Vec v, int64_t count) {
  T buffer[kLanes];
  store(buffer, v);
  for (int64_t i = 0; i < count; ++i) p[i] = buffer[i];
}

// A NaN in b is kept (and one in a lost): what the instructions do.
#if defined(__AVX512F__)  // GCC 12 compares and blends
static inline Vec vmin(Vec a, Vec b) { return (Vec)_mm512_maskz_min_ps(kAllLanes, (__m512)a, (__m512)b); }
static inline Vec vmax(Vec a, Vec b) { return (Vec)_mm512_maskz_max_ps(kAllLanes, (__m512)a, (__m512)b); }
#else
static inline Vec vmin(Vec a, Vec b) { return a < b ? a : b; }
static inline Vec vmax(Vec a, Vec b) { return a > b ? a : b; }
#endif
static inline Vec vabs(Vec x) { return (Vec)((VecBits)x & 0x7fffffffu); }

// Sum and maximum of the lanes; halves are folded, so the order does not depend on the data.
static inline float sum_lanes(Vec v) {
  float lane[kLanes];
  store(lane, v);
  for (int half = kLanes / 2; half; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}
static inline float max_lanes(Vec v) {
  float lane[kLanes];
  store(lane, v);
  for (int half = kLanes / 2; half; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
  return lane[0];
}

}  // namespace rocm_sd::ROCM_SD_ISA
