// CDNA (gfx90a, gfx942, gfx950): wave64, 16x16x16 MFMA. A lane holds 4 consecutive k of a row or column, and
// 4 consecutive rows of a column of C, so that C is a B without any exchange.
#pragma once

#include <type_traits>

#include "composable_kernels/arch/amd.hpp"
#include "composable_kernels/atom.hpp"

namespace rocm_sd {

struct Cdna3 : Amd<64> {
  static constexpr const char* kName = "cdna3";
  static constexpr int kFragmentsAhead = 8;  // read from LDS ahead of their use
  static constexpr bool kChiplets = true;    // with an L2 each, on some GPUs of the family
};

template <class T>
struct Atom<Cdna3, T> {
  using E = typename amd::Raw<T>::Type;
  struct A {
    amd::Vector<E, 4> k;  // row lane % 16, k = i + 4 (lane / 16)
  };
  using B = A;
  struct C {
    float x[4];
  };
  static constexpr int kColumns = 1;

  static ROCM_SD_DEVICE int row(int i) { return i + Cdna3::lane() / 16 * 4; }
  static ROCM_SD_DEVICE int column(int) { return Cdna3::lane() % 16; }
  static ROCM_SD_DEVICE constexpr int lane_column(int) { return 0; }

  static ROCM_SD_DEVICE A load(const T* tile, int ld, int skip = 0) {
    const T* row = tile + Cdna3::lane() % 16 * ld + Cdna3::lane() % 16 / 8 * skip;
    return {amd::load_vector<amd::Vector<E, 4>>(row + Cdna3::lane() / 16 * 4)};
  }
  static ROCM_SD_DEVICE B load_b(const T* tile, int ld) { return load(tile, ld); }
  static ROCM_SD_DEVICE A load_transposed(const T* tile, int ld) {
    const T* first = tile + Cdna3::lane() / 16 * 4 * ld + Cdna3::lane() % 16;
    A a;
    ROCM_SD_UNROLL
    for (int i = 0; i < 4; ++i) a.k[i] = amd::raw(first[i * ld]);
    return a;
  }
  static ROCM_SD_DEVICE void mma(C& c, const A& a, const B& b) {
    amd::Vector<float, 4> acc = __builtin_bit_cast(decltype(acc), c);
    if constexpr (std::is_same_v<E, short>)
      acc = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a.k, b.k, acc, 0, 0, 0);
    else
      acc = __builtin_amdgcn_mfma_f32_16x16x16f16(a.k, b.k, acc, 0, 0, 0);
    c = __builtin_bit_cast(C, acc);
  }
  static ROCM_SD_DEVICE B as_b(const C& c) {
    return amd::of_words<B>([&](int i) { return amd::pack<T>(c.x[i], c.x[i + 1]); });
  }
  template <bool kSum>
  static ROCM_SD_DEVICE B as_weights(const C& c, float (&sum)[kColumns]) {
    return amd::of_words<B>(
        [&](int i) { return amd::cut_and_sum<Cdna3, T, kSum>(c.x[i], c.x[i + 1], sum[0]); });
  }
  static ROCM_SD_DEVICE void store_columns(T* tile, int ld, const C& c) {
    *reinterpret_cast<B*>(tile + column(0) * ld + row(0)) = as_b(c);
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
