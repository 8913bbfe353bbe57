// The atom of AMD's families that store nothing twice: a lane holds kHeld consecutive k of a row or column,
// and as many consecutive rows of a column of C, so that C is a B without any exchange.
#pragma once

#include "composable_kernels/arch/amd.hpp"
#include "composable_kernels/atom.hpp"

namespace rocm_sd::amd {

// All of an atom but mma, column_sum and column_max.
template <class Arch, class T, int kHeld>
struct ConsecutiveAtom {
  using E = typename Raw<T>::Type;
  struct A {
    Vector<E, kHeld> k;  // row lane % 16, k = i + kHeld (lane / 16)
  };
  using B = A;
  struct C {
    float x[kHeld];
  };
  static constexpr int kColumns = 1;

  static ROCM_SD_DEVICE int row(int i) { return i + Arch::lane() / 16 * kHeld; }
  static ROCM_SD_DEVICE int column(int) { return Arch::lane() % 16; }
  static ROCM_SD_DEVICE constexpr int lane_column(int) { return 0; }

  static ROCM_SD_DEVICE A load(const T* tile, int ld, int skip = 0) {
    const T* row = tile + Arch::lane() % 16 * ld + Arch::lane() % 16 / 8 * skip;
    return {load_vector<Vector<E, kHeld>>(row + Arch::lane() / 16 * kHeld)};
  }
  static ROCM_SD_DEVICE B load_b(const T* tile, int ld) { return load(tile, ld); }
  static ROCM_SD_DEVICE A load_transposed(const T* tile, int ld) {
    const T* first = tile + Arch::lane() / 16 * kHeld * ld + Arch::lane() % 16;
    A a;
    ROCM_SD_UNROLL
    for (int i = 0; i < kHeld; ++i) a.k[i] = raw(first[i * ld]);
    return a;
  }
  static ROCM_SD_DEVICE B as_b(const C& c) {
    return of_words([&](int i) { return pack<T>(c.x[i], c.x[i + 1]); });
  }
  template <bool kSum>
  static ROCM_SD_DEVICE B as_weights(const C& c, float (&sum)[kColumns]) {
    return of_words([&](int i) { return cut_and_sum<Arch, T, kSum>(c.x[i], c.x[i + 1], sum[0]); });
  }
  static ROCM_SD_DEVICE void store_columns(T* tile, int ld, const C& c) {
    *reinterpret_cast<B*>(tile + column(0) * ld + row(0)) = as_b(c);
  }

 private:
  // word(i): of the lane's elements i and i + 1.
  template <class Word>
  static ROCM_SD_DEVICE B of_words(const Word& word) {
    Vector<uint32_t, kHeld / 2> words;
    ROCM_SD_UNROLL
    for (int i = 0; i < kHeld / 2; ++i) words[i] = word(2 * i);
    return __builtin_bit_cast(B, words);
  }
};

}  // namespace rocm_sd::amd
