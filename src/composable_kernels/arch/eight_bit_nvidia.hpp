// Products of 8-bit elements on NVIDIA (sm_89 and later): mma m16n8k32 of e4m3 or of signed integers.
// Operands are swapped and fragments laid out as in nvidia.hpp, with 4 bytes where it has 2 elements of 16
// bits (PTX ISA 8, "mma.m16n8k32").
#pragma once

#include "composable_kernels/arch/eight_bit_atom.hpp"
#include "composable_kernels/arch/nvidia.hpp"

namespace rocm_sd {

template <EightBitElement T>
struct MatrixAtom<Nvidia, T, false> {
  static constexpr int kDepth = 32;
  struct A {
    uint32_t r[4];  // r[2h + j]: row 8h + lane / 4, k = 16j + lane % 4 * 4 and the next three
  };
  struct B {
    uint32_t r[4];  // r[h + 2j]: column 8h + lane / 4, the same k
  };
  struct C {
    EightBitSum<T> x[8];  // x[4h + 2g + e]: row 8h + lane % 4 * 2 + e, column 8g + lane / 4
  };

  static ROCM_SD_DEVICE int row(int i) { return i / 4 * 8 + Nvidia::lane() % 4 * 2 + i % 2; }
  static ROCM_SD_DEVICE int column(int i) { return i / 2 % 2 * 8 + Nvidia::lane() / 4; }

  template <class Cfg>
  static ROCM_SD_DEVICE A load_at(const T* tile, int k) {
    const int matrix = Nvidia::lane() / 8, line = Nvidia::lane() % 8;
    A a;
    load_matrices(a.r, tile + Cfg::element(matrix / 2 * 8 + line, k + matrix % 2 * 16));
    return a;
  }
  template <class Cfg>
  static ROCM_SD_DEVICE B load_b_at(const T* tile, int k) {
    const int matrix = Nvidia::lane() / 8, line = Nvidia::lane() % 8;
    B b;
    load_matrices(b.r, tile + Cfg::element(matrix % 2 * 8 + line, k + matrix / 2 * 16));
    return b;
  }
  static ROCM_SD_DEVICE void mma(C& c, const A& a, const B& b) {
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) {
      EightBitSum<T>* x = c.x + 4 * h;
      if constexpr (std::is_same_v<T, Int8>)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3])
            : "r"(b.r[0]), "r"(b.r[1]), "r"(b.r[2]), "r"(b.r[3]), "r"(a.r[2 * h]), "r"(a.r[2 * h + 1]));
      else
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
            : "r"(b.r[0]), "r"(b.r[1]), "r"(b.r[2]), "r"(b.r[3]), "r"(a.r[2 * h]), "r"(a.r[2 * h + 1]));
    }
  }
};

}  // namespace rocm_sd
