// What the matrix instructions share: reading fragments as [k][lane] tables of float or int32, and the
// product.
#pragma once

#include "emulator/lanes.hpp"
#include "emulator/small_floats.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {

enum class Element : uint8_t { kF16, kBf16, kF32, kXf32, kI8, kU8, kI4, kU4, kFp8, kBf8, kFp8Fnuz, kBf8Fnuz };

constexpr int element_bits(Element e) {
  switch (e) {
    case Element::kF32:
    case Element::kXf32: return 32;
    case Element::kF16:
    case Element::kBf16: return 16;
    case Element::kI4:
    case Element::kU4: return 4;
    default: return 8;
  }
}

// Element `i` of a lane's fragment, in all 32 lanes of half h, as T (float or int32_t).
template <Element kE, class T>
inline void element_row(Wave& w, const Operand& o, uint32_t h, uint32_t i, T* out) {
  constexpr uint32_t bits = element_bits(kE), per_dword = 32 / bits;
  alignas(64) uint32_t buffer[kRow];
  const uint32_t* raw = raw_row(w, o, h, i / per_dword, buffer);
  const uint32_t shift = i % per_dword * bits;
  if constexpr (kE == Element::kF32) {
    ROCM_SD_LANES out[l] = cast<float>(raw[l]);
  } else if constexpr (kE == Element::kXf32) {
    // Ten bits of mantissa: cut off, as CDNA3's ISA document says of each instruction; NaN stays NaN.
    ROCM_SD_LANES out[l] =
        cast<float>((raw[l] & 0x7fffffff) > 0x7f800000 ? raw[l] | 0x400000 : raw[l] & 0xffffe000);
  } else if constexpr (kE == Element::kF16) {
    ROCM_SD_LANES out[l] = half_to_float(raw[l] >> shift & 0xffff);
  } else if constexpr (kE == Element::kBf16) {
    ROCM_SD_LANES out[l] = bf16_to_float(raw[l] >> shift & 0xffff);
  } else if constexpr (kE == Element::kI8 || kE == Element::kI4) {
    ROCM_SD_LANES out[l] = static_cast<int32_t>(raw[l] << (32 - bits - shift)) >> (32 - bits);
  } else if constexpr (kE == Element::kU8 || kE == Element::kU4) {
    ROCM_SD_LANES out[l] = static_cast<int32_t>(raw[l] >> shift & ((1u << bits) - 1));
  } else {
    constexpr bool bf8 = kE == Element::kBf8 || kE == Element::kBf8Fnuz;
    constexpr bool fnuz = kE == Element::kFp8Fnuz || kE == Element::kBf8Fnuz;
    ROCM_SD_LANES out[l] = f8_to_float<bf8, fnuz>(raw[l] >> shift & 0xff);
  }
}

// Products of 16-bit floats are exact in float, so that fma and mul + add agree; CPUs without fma take the
// latter unless the sources are floats themselves.
template <bool kFused>
inline float multiply_add(float a, float b, float c) {
#ifndef __FMA__
  if constexpr (!kFused) return a * b + c;
#endif
  return __builtin_fmaf(a, b, c);
}
template <bool kFused>
inline int32_t multiply_add(int32_t a, int32_t b, int32_t c) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b) + static_cast<uint32_t>(c));
}

// c [kM,kN] += a^T b with a [k][kM], b [k][kN]; k from the first to the last, one rounding each.
template <int kM, int kN, bool kFused, class T>
inline void multiply(const T* a, const T* b, T* c, int depth) {
  constexpr int kRows = kM < 4 ? kM : 4, kCols = kN < 16 ? kN : 16;
  for (int m = 0; m < kM; m += kRows)
    for (int n = 0; n < kN; n += kCols) {
      T acc[kRows][kCols];
      for (int r = 0; r < kRows; ++r)
        for (int j = 0; j < kCols; ++j) acc[r][j] = c[(m + r) * kN + n + j];
      for (int k = 0; k < depth; ++k)
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const T scale = a[k * kM + m + r];
#pragma GCC ivdep
          for (int j = 0; j < kCols; ++j)
            acc[r][j] = multiply_add<kFused>(scale, b[k * kN + n + j], acc[r][j]);
        }
      for (int r = 0; r < kRows; ++r)
        for (int j = 0; j < kCols; ++j) c[(m + r) * kN + n + j] = acc[r][j];
    }
}

// c [kM,kN] += A B for an A that has two of every four elements of a row: a [kept][kM] holds them, pick
// [kept][kM] says which of the four each is; b [2 kept][kN]. What was left out multiplies nothing, not even
// an infinity.
template <int kM, int kN, class T>
inline void multiply_sparse(const T* a, const uint8_t* pick, const T* b, T* c, int kept) {
  for (int m = 0; m < kM; ++m)
    for (int k = 0; k < kept; ++k) {
      const T scale = a[k * kM + m];
      const T* row = b + (k / 2 * 4 + pick[k * kM + m]) * kN;
#pragma GCC ivdep
      for (int j = 0; j < kN; ++j) c[m * kN + j] = multiply_add<false>(scale, row[j], c[m * kN + j]);
    }
}

}  // namespace ROCM_SD_ISA
}  // namespace rocm_sd::emu
