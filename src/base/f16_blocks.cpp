#include "base/f16_blocks.hpp"

#include "base/dtype.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rocm_sd {
namespace {

void narrow_each(const float* from, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = float_to_f16(from[i]);
}
void widen_each(const uint16_t* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = f16_to_float(from[i]);
}

#if defined(__x86_64__)
constexpr int64_t kBlock = 8;

bool has_f16c() {
  static const bool has = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  return has;
}

// The CPU gives a NaN's payload another way: blocks that hold one are converted one by one.
__attribute__((target("avx,f16c"))) void narrow_blocks(const float* from, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; i += kBlock) {
    const __m256 values = _mm256_loadu_ps(from + i);
    if (_mm256_movemask_ps(_mm256_cmp_ps(values, values, _CMP_UNORD_Q)))
      narrow_each(from + i, to + i, kBlock);
    else
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
}
__attribute__((target("avx,f16c"))) void widen_blocks(const uint16_t* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += kBlock) {
    const __m256 values = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    if (_mm256_movemask_ps(_mm256_cmp_ps(values, values, _CMP_UNORD_Q)))
      widen_each(from + i, to + i, kBlock);
    else
      _mm256_storeu_ps(to + i, values);
  }
}
#endif

}  // namespace

void floats_to_f16(const float* from, uint16_t* to, int64_t count) {
  int64_t done = 0;
#if defined(__x86_64__)
  if (has_f16c()) narrow_blocks(from, to, done = count / kBlock * kBlock);
#endif
  narrow_each(from + done, to + done, count - done);
}

void f16_to_floats(const uint16_t* from, float* to, int64_t count) {
  int64_t done = 0;
#if defined(__x86_64__)
  if (has_f16c()) widen_blocks(from, to, done = count / kBlock * kBlock);
#endif
  widen_each(from + done, to + done, count - done);
}

}  // namespace rocm_sd
