// RDNA3 (gfx1100, 1101, 1102, 1150, 1151): wave32, 16x16x16 WMMA. Fragment maps as checked on two emulators:
// A and B are stored twice, by both halves of the wave; C's rows alternate between the halves.
#pragma once

#include <type_traits>

#include "composable_kernels/arch/amd.hpp"
#include "composable_kernels/atom.hpp"

namespace rocm_sd {

struct Rdna3 : Amd<32> {
  static constexpr const char* kName = "rdna3";
  static constexpr int kFragmentsAhead = 3;  // read from LDS ahead of their use
  static constexpr bool kChiplets = false;
};

template <class T>
struct Atom<Rdna3, T> {
  using E = typename amd::Raw<T>::Type;
  struct A {
    amd::Vector<E, 16> k;  // row lane % 16, element k
  };
  using B = A;  // column lane % 16
  struct C {
    float x[8];
  };
  static constexpr int kColumns = 1;  // of C that one lane holds elements of
  static constexpr int kRowStep = 2;  // from a lane's element to its next one

  static ROCM_SD_DEVICE int row(int i) { return 2 * i + Rdna3::lane() / 16; }
  static ROCM_SD_DEVICE int column(int) { return Rdna3::lane() % 16; }
  static ROCM_SD_DEVICE constexpr int lane_column(int) { return 0; }

  static ROCM_SD_DEVICE A load(const T* tile, int ld, int skip = 0) {
    const T* row = tile + Rdna3::lane() % 16 * ld + Rdna3::lane() % 16 / 8 * skip;
    A a;
    const auto low = amd::load_vector<amd::Vector<E, 8>>(row),
               high = amd::load_vector<amd::Vector<E, 8>>(row + 8);
    a.k = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return a;
  }
  static ROCM_SD_DEVICE B load_b(const T* tile, int ld) { return load(tile, ld); }
  static ROCM_SD_DEVICE A load_transposed(const T* tile, int ld) {
    A a;
    ROCM_SD_UNROLL
    for (int k = 0; k < 16; ++k) a.k[k] = amd::raw(tile[k * ld + Rdna3::lane() % 16]);
    return a;
  }
  static ROCM_SD_DEVICE void mma(C& c, const A& a, const B& b) {
    amd::Vector<float, 8> acc = __builtin_bit_cast(decltype(acc), c);
    if constexpr (std::is_same_v<E, short>)
      acc = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a.k, b.k, acc);
    else
      acc = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a.k, b.k, acc);
    c = __builtin_bit_cast(C, acc);
  }
  static ROCM_SD_DEVICE B as_b(const C& c) {
    return exchanged([&](int i) { return amd::pack<T>(c.x[i], c.x[i + 1]); });
  }
  template <bool kSum>
  static ROCM_SD_DEVICE B as_weights(const C& c, float (&sum)[kColumns]) {
    return exchanged([&](int i) { return amd::cut_and_sum<Rdna3, T, kSum>(c.x[i], c.x[i + 1], sum[0]); });
  }
  // Either half of the wave stores eight rows of the sixteen.
  static ROCM_SD_DEVICE void store_columns(T* tile, int ld, const C& c) {
    const auto words = __builtin_bit_cast(amd::Vector<uint32_t, 8>, as_b(c));
    const bool upper = Rdna3::lane() >= 16;
    amd::Vector<uint32_t, 4> mine;
    ROCM_SD_UNROLL
    for (int i = 0; i < 4; ++i) mine[i] = upper ? words[i + 4] : words[i];
    *reinterpret_cast<decltype(mine)*>(tile + column(0) * ld + (upper ? 8 : 0)) = mine;
  }
  // Over the lanes that hold one column.
  static ROCM_SD_DEVICE float column_sum(float x) { return x + amd::other_half(x); }
  static ROCM_SD_DEVICE float column_max(float x) { return Rdna3::max(x, amd::other_half(x)); }

 private:
  // Both halves of the wave need all 16 rows of their column: each sends its eight to the other. word(i): of
  // the lane's elements i and i + 1.
  template <class Word>
  static ROCM_SD_DEVICE B exchanged(const Word& word) {
    // Bytes of (theirs, mine) that make the words (own row, other half's row), in the order of the rows.
    const bool upper = Rdna3::lane() >= 16;
    const uint32_t first = upper ? 0x01000504 : 0x05040100, second = upper ? 0x03020706 : 0x07060302;
    amd::Vector<uint32_t, 8> words;
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; i += 2) {
      const uint32_t mine = word(i);
      const uint32_t theirs = amd::other_half(mine);
      words[i] = __builtin_amdgcn_perm(theirs, mine, first);
      words[i + 1] = __builtin_amdgcn_perm(theirs, mine, second);
    }
    return __builtin_bit_cast(B, words);
  }
};

}  // namespace rocm_sd
