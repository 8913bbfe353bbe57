// The atom of 8-bit operands: as MatrixAtom of 16-bit ones, with sums in float or, of integers, in 32 bits.
// Here that of Scalar; arch/eight_bit_<family>.hpp has the others.
#pragma once

#include <type_traits>

#include "composable_kernels/arch/plain_atom.hpp"
#include "composable_kernels/eight_bit.hpp"

namespace rocm_sd {

template <class T>
concept EightBitElement = std::is_same_v<T, Int8> || std::is_same_v<T, Fp8>;

// Sums of 2^16 products and more of two Int8 fit.
template <EightBitElement T>
using EightBitSum = std::conditional_t<std::is_same_v<T, Int8>, int32_t, float>;

struct Scalar;

template <EightBitElement T>
struct MatrixAtom<Scalar, T, false> {
  static constexpr int kDepth = 32;
  struct A {
    float x[16][kDepth];  // [row][k]
  };
  using B = A;  // [column][k]
  struct C {
    EightBitSum<T> x[256];  // x[16 row + column]
  };

  static ROCM_SD_DEVICE int row(int i) { return i / 16; }
  static ROCM_SD_DEVICE int column(int i) { return i % 16; }

  template <class Cfg>
  static ROCM_SD_DEVICE A load_at(const T* tile, int k) {
    A a;
    for (int r = 0; r < 16; ++r)
      for (int i = 0; i < kDepth; ++i) a.x[r][i] = to_float(tile[Cfg::element(r, k + i)]);
    return a;
  }
  template <class Cfg>
  static ROCM_SD_DEVICE B load_b_at(const T* tile, int k) {
    return load_at<Cfg>(tile, k);
  }
  static ROCM_SD_DEVICE void mma(C& c, const A& a, const B& b) {
    for (int i = 0; i < 256; ++i)
      for (int k = 0; k < kDepth; ++k) c.x[i] += static_cast<EightBitSum<T>>(a.x[i / 16][k] * b.x[i % 16][k]);
  }
};

}  // namespace rocm_sd
