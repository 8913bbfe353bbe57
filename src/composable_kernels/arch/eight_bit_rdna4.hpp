// Products of 8-bit elements on RDNA4: WMMA 16x16x16 of e4m3 or of signed integers.
#pragma once

#include "composable_kernels/arch/eight_bit_atom.hpp"
#include "composable_kernels/arch/rdna4.hpp"

namespace rocm_sd {

// Two instructions: a lane reads 16 bytes of its row, the first takes the lower half of them and the second
// the upper one, the same k of A and of B.
template <EightBitElement T>
struct MatrixAtom<Rdna4, T, false> {
  static constexpr int kDepth = 32;
  struct alignas(16) A {
    amd::Vector<int, 2> half[2];  // row lane % 16, k = 16 (lane / 16) + 8 half + byte
  };
  using B = A;
  struct C {
    EightBitSum<T> x[8];
  };

  static ROCM_SD_DEVICE int row(int i) { return i + Rdna4::lane() / 16 * 8; }
  static ROCM_SD_DEVICE int column(int) { return Rdna4::lane() % 16; }

  template <class Cfg>
  static ROCM_SD_DEVICE A load_at(const T* tile, int k) {
    return *reinterpret_cast<const A*>(tile + Cfg::element(Rdna4::lane() % 16, k + Rdna4::lane() / 16 * 16));
  }
  template <class Cfg>
  static ROCM_SD_DEVICE B load_b_at(const T* tile, int k) {
    return load_at<Cfg>(tile, k);
  }
  static ROCM_SD_DEVICE void mma(C& c, const A& a, const B& b) {
    auto sum = __builtin_bit_cast(amd::Vector<EightBitSum<T>, 8>, c);
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) {
      if constexpr (std::is_same_v<T, Int8>)
        sum = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, a.half[h], true, b.half[h], sum, false);
      else
        sum = __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(a.half[h], b.half[h], sum);
    }
    c = __builtin_bit_cast(C, sum);
  }
};

}  // namespace rocm_sd
