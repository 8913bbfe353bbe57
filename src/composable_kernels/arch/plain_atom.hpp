// PlainAtom: the atom of float operands, by ordinary multiply-adds: what --dtype f32 and the float re-run of
// an overflowing stage use. Members as atom.hpp says, but for 4 of depth at a time.
#pragma once

#include <type_traits>

#include "composable_kernels/atom.hpp"
#include "composable_kernels/chunk16.hpp"

namespace rocm_sd {

// A lane holds kRows rows by kColumns columns of C.
template <class Arch>
struct PlainAtom {
  static constexpr int kDepth = 4;
  static constexpr int kColumns = Arch::lanes == 64 ? 1 : Arch::lanes == 32 ? 2 : 16;
  static constexpr int kRows = Arch::lanes == 1 ? 16 : 4;

  struct A {
    float x[kRows][4];
  };
  struct B {
    float x[kColumns][4];
  };
  struct C {
    float x[kRows * kColumns];  // x[kRows * column + row]
  };

  static ROCM_SD_DEVICE int row(int i) { return first_row() + i % kRows; }
  static ROCM_SD_DEVICE int column(int i) { return first_column() + i / kRows; }
  static ROCM_SD_DEVICE constexpr int lane_column(int i) { return i / kRows; }

  static ROCM_SD_DEVICE A load(const float* tile, int ld) {
    A a;
    ROCM_SD_UNROLL
    for (int r = 0; r < kRows; ++r) ROCM_SD_UNROLL
    for (int k = 0; k < 4; ++k) a.x[r][k] = tile[(first_row() + r) * ld + k];
    return a;
  }
  static ROCM_SD_DEVICE B load_b(const float* tile, int ld) {
    B b;
    ROCM_SD_UNROLL
    for (int c = 0; c < kColumns; ++c) ROCM_SD_UNROLL
    for (int k = 0; k < 4; ++k) b.x[c][k] = tile[(first_column() + c) * ld + k];
    return b;
  }
  template <class Cfg>
  static ROCM_SD_DEVICE A load_at(const float* tile, int k) {
    return load(tile + k, Cfg::kLd);
  }
  template <class Cfg>
  static ROCM_SD_DEVICE B load_b_at(const float* tile, int k) {
    return load_b(tile + k, Cfg::kLd);
  }
  static ROCM_SD_DEVICE void mma(C& c, const A& a, const B& b) {
    ROCM_SD_UNROLL
    for (int k = 0; k < 4; ++k) ROCM_SD_UNROLL
    for (int i = 0; i < kRows * kColumns; ++i) c.x[i] += a.x[i % kRows][k] * b.x[i / kRows][k];
  }

 private:
  static ROCM_SD_DEVICE int first_row() { return Arch::lane() * kColumns / 16 * kRows; }
  static ROCM_SD_DEVICE int first_column() { return Arch::lane() * kColumns % 16; }
};

// The atom of the matrix unit with its depth, which the loop over k advances by. load_at, load_b_at: from row
// 0 of a tile on, k .. k + kDepth - 1.
template <class Arch, class T, bool kDeep = Arch::kDeepAtoms>
struct MatrixAtom : Atom<Arch, T> {
  using Base = Atom<Arch, T>;
  static constexpr int kDepth = 16;
  template <class Cfg>
  static ROCM_SD_DEVICE typename Base::A load_at(const T* tile, int k) {
    return Base::load(tile + k, Cfg::kLd);
  }
  template <class Cfg>
  static ROCM_SD_DEVICE typename Base::B load_b_at(const T* tile, int k) {
    return Base::load_b(tile + k, Cfg::kLd);
  }
};
// Two of them, so that a lane reads 16 bytes at once: the first takes the lower half of each lane's piece and
// the second the upper one, the same k of A and of B.
template <class Arch, class T>
struct MatrixAtom<Arch, T, true> : Atom<Arch, T> {
  using Base = Atom<Arch, T>;
  static constexpr int kDepth = 32;
  struct alignas(16) A {
    typename Base::A half[2];
  };
  using B = A;

  // Of 16 bytes from global memory: columns lane_depth() and on of row lane % 16.
  static ROCM_SD_DEVICE int lane_depth() { return Arch::lane() / 16 * 8; }
  static ROCM_SD_DEVICE A from_chunk(Chunk16 chunk) { return __builtin_bit_cast(A, chunk); }

  template <class Cfg>
  static ROCM_SD_DEVICE A load_at(const T* tile, int k) {
    return *reinterpret_cast<const A*>(tile + Cfg::element(Arch::lane() % 16, k + lane_depth()));
  }
  template <class Cfg>
  static ROCM_SD_DEVICE B load_b_at(const T* tile, int k) {
    return load_at<Cfg>(tile, k);
  }
  static ROCM_SD_DEVICE void mma(typename Base::C& c, const A& a, const B& b) {
    Base::mma(c, a.half[0], b.half[0]);
    Base::mma(c, a.half[1], b.half[1]);
  }
};

template <class Arch, class T>
using AtomOf = std::conditional_t<std::is_same_v<T, float>, PlainAtom<Arch>, MatrixAtom<Arch, T>>;

}  // namespace rocm_sd
