// Products of 8-bit elements on gfx942: MFMA 16x16x32 of FNUZ e4m3 or of signed integers. FNUZ reads each
// code of ours as half its value (eight_bit.hpp): whoever scales the sums multiplies by 4.
#pragma once

#include "composable_kernels/arch/cdna3.hpp"
#include "composable_kernels/arch/eight_bit_atom.hpp"

namespace rocm_sd {

// Two instructions, as on RDNA4.
template <EightBitElement T>
struct MatrixAtom<Cdna3, T, true> {
  static constexpr int kDepth = 64;
  struct alignas(16) A {
    int64_t half[2];  // row lane % 16, k = 16 (lane / 16) + 8 half + byte
  };
  using B = A;
  struct C {
    EightBitSum<T> x[4];
  };

  static ROCM_SD_DEVICE int row(int i) { return i + Cdna3::lane() / 16 * 4; }
  static ROCM_SD_DEVICE int column(int) { return Cdna3::lane() % 16; }

  template <class Cfg>
  static ROCM_SD_DEVICE A load_at(const T* tile, int k) {
    return *reinterpret_cast<const A*>(tile + Cfg::element(Cdna3::lane() % 16, k + Cdna3::lane() / 16 * 16));
  }
  template <class Cfg>
  static ROCM_SD_DEVICE B load_b_at(const T* tile, int k) {
    return load_at<Cfg>(tile, k);
  }
  static ROCM_SD_DEVICE void mma(C& c, const A& a, const B& b) {
    auto sum = __builtin_bit_cast(amd::Vector<EightBitSum<T>, 4>, c);
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) {
      if constexpr (std::is_same_v<T, Int8>)
        sum = __builtin_amdgcn_mfma_i32_16x16x32_i8(a.half[h], b.half[h], sum, 0, 0, 0);
      else
        sum = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(a.half[h], b.half[h], sum, 0, 0, 0);
    }
    c = __builtin_bit_cast(C, sum);
  }
};

}  // namespace rocm_sd
