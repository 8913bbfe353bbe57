// CDNA (gfx90a, gfx942, gfx950): wave64, 16x16x16 MFMA. A lane holds 4 consecutive k of a row or column, and
// 4 consecutive rows of a column of C, so that C is a B without any exchange.
#pragma once

#include <type_traits>

#include "composable_kernels/arch/amd_atom.hpp"

namespace rocm_sd {

struct Cdna3 : Amd<64> {
  static constexpr const char* kName = "cdna3";
  static constexpr int kFragmentsAhead = 8;  // read from LDS ahead of their use
  static constexpr bool kChiplets = true;    // with an L2 each, on some GPUs of the family
};

template <class T>
struct Atom<Cdna3, T> : amd::ConsecutiveAtom<Cdna3, T, 4> {
  using Base = amd::ConsecutiveAtom<Cdna3, T, 4>;
  using typename Base::A, typename Base::B, typename Base::C;

  static ROCM_SD_DEVICE void mma(C& c, const A& a, const B& b) {
    amd::Vector<float, 4> acc = __builtin_bit_cast(decltype(acc), c);
    if constexpr (std::is_same_v<T, Bf16>)
      acc = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a.k, b.k, acc, 0, 0, 0);
    else
      acc = __builtin_amdgcn_mfma_f32_16x16x16f16(a.k, b.k, acc, 0, 0, 0);
    c = __builtin_bit_cast(C, acc);
  }
  static ROCM_SD_DEVICE float column_sum(float x) {
    x += Cdna3::shuffle_xor(x, 16);
    return x + Cdna3::shuffle_xor(x, 32);
  }
  static ROCM_SD_DEVICE float column_max(float x) {
    x = Cdna3::max(x, Cdna3::shuffle_xor(x, 16));
    return Cdna3::max(x, Cdna3::shuffle_xor(x, 32));
  }
};

}  // namespace rocm_sd
