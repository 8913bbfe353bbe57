// Warpgroup products (sm_90a) whose rows lie in registers, as attention needs them: C [64][kColumns] += A
// [64][16] B [16][kColumns], B in LDS in the 128-byte swizzle. Layouts: PTX ISA 8, "wgmma.mma_async",
// register fragments and "Shared memory matrix layout".
#pragma once

#include "composable_kernels/arch/hopper_wgmma.hpp"
#include "composable_kernels/arch/nvidia_registers.hpp"

namespace rocm_sd {

// What a thread holds of A: a[2j + h] is row 16 (wave % 4) + 8h + lane / 4, k = 8j + lane % 4 * 2 and the
// next. And of C: x[4j + 2h + e], the same row, column 8j + lane % 4 * 2 + e. add: 0 leaves out what C had.
// kAlongColumns: a row of LDS holds B's columns of one k (a value of attention), else the k of one column (a
// key).
template <class T, int kColumns, bool kAlongColumns>
struct WgmmaRows;

struct WarpgroupRows {
  // The tile of kAlongColumns: rows of 128 bytes; panels of 64 columns lie `panel` bytes apart.
  static ROCM_SD_DEVICE uint64_t tile_along_columns(const void* lds, int panel) {
    const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(lds));
    return static_cast<uint64_t>((at & 0x3ffff) >> 4) | static_cast<uint64_t>(panel >> 4) << 16 |
           uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
  }
  static constexpr uint64_t kNextRows = 16 * 128 >> 4;  // added to it: 16 rows further along k

  // The thread's warpgroup, a number that the compiler sees is the wave's.
  static ROCM_SD_DEVICE int consumer() { return __shfl_sync(~0u, Nvidia::thread() / 128, 0); }
  // x, of which the compiler knows nothing before here: it cannot compute ahead from it.
  static ROCM_SD_DEVICE int unknown(int x) {
    asm volatile("" : "+r"(x)::"memory");
    return x;
  }
  // x = 2^x, where the code has it: the compiler would put what is done with the result right behind it.
  static ROCM_SD_DEVICE void exp2_in_order(float& x) { asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x)); }
  static ROCM_SD_DEVICE void pin_one(float& x) { asm volatile("" : "+f"(x)); }
  // The compiler may neither read nor move accumulators across: the products' asm does not say when it writes
  // them.
  template <int kCount>
  static ROCM_SD_DEVICE void pin(float (&x)[kCount]) {
    ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(x[i])::"memory");
  }
  template <int kCount>
  static ROCM_SD_DEVICE void pin(uint32_t (&x)[kCount][4]) {
    ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i)
      asm volatile("" : "+r"(x[i][0]), "+r"(x[i][1]), "+r"(x[i][2]), "+r"(x[i][3])::"memory");
  }
};

// clang-format off
#define ROCM_SD_FLOATS_4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define ROCM_SD_FLOATS_16(x, i) ROCM_SD_FLOATS_4(x, i), ROCM_SD_FLOATS_4(x, i + 4), ROCM_SD_FLOATS_4(x, i + 8), ROCM_SD_FLOATS_4(x, i + 12)
#define ROCM_SD_FLOATS_20(x) ROCM_SD_FLOATS_16(x, 0), ROCM_SD_FLOATS_4(x, 16)
#define ROCM_SD_FLOATS_32(x) ROCM_SD_FLOATS_16(x, 0), ROCM_SD_FLOATS_16(x, 16)
#define ROCM_SD_FLOATS_40(x) ROCM_SD_FLOATS_32(x), ROCM_SD_FLOATS_4(x, 32), ROCM_SD_FLOATS_4(x, 36)
#define ROCM_SD_FLOATS_64(x) ROCM_SD_FLOATS_32(x), ROCM_SD_FLOATS_16(x, 32), ROCM_SD_FLOATS_16(x, 48)
#define ROCM_SD_FLOATS_128(x) ROCM_SD_FLOATS_64(x), ROCM_SD_FLOATS_16(x, 64), ROCM_SD_FLOATS_16(x, 80), ROCM_SD_FLOATS_16(x, 96), ROCM_SD_FLOATS_16(x, 112)
// clang-format on
// One product into the floats x: `operands` is what follows C in the instruction, `before` what precedes it.
#define ROCM_SD_WGMMA_OF(type, columns, floats, before, operands, ...)                          \
  asm volatile("{" before "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type \
               " {" ROCM_SD_REGISTERS_##floats "}, " operands ";}"                              \
               : ROCM_SD_FLOATS_##floats(x)                                                     \
               : __VA_ARGS__)
#define ROCM_SD_WGMMA(columns, floats, before, operands, ...)                 \
  if constexpr (std::is_same_v<T, Bf16>)                                      \
    ROCM_SD_WGMMA_OF("bf16", columns, floats, before, operands, __VA_ARGS__); \
  else                                                                        \
    ROCM_SD_WGMMA_OF("f16", columns, floats, before, operands, __VA_ARGS__)
#define ROCM_SD_ADDS(add) ".reg .pred p; setp.ne.b32 p, " add ", 0; "
// a, b, add: the numbers of those operands, which follow the floats'.
#define ROCM_SD_GROUP_ROWS_MMA(columns, floats, along, a, b, add, transposed)                                \
  template <class T>                                                                                         \
  struct WgmmaRows<T, columns, along> {                                                                      \
    static ROCM_SD_DEVICE void mma(float (&x)[floats], const uint32_t (&rows)[4], uint64_t tile, int adds) { \
      ROCM_SD_WGMMA(columns, floats, ROCM_SD_ADDS(add), "{" a "}, " b ", p, 1, 1, " transposed,              \
                    "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "l"(tile), "r"(adds));           \
    }                                                                                                        \
  };
ROCM_SD_GROUP_ROWS_MMA(64, 32, false, "%32, %33, %34, %35", "%36", "%37", "0")
ROCM_SD_GROUP_ROWS_MMA(80, 40, false, "%40, %41, %42, %43", "%44", "%45", "0")
ROCM_SD_GROUP_ROWS_MMA(128, 64, false, "%64, %65, %66, %67", "%68", "%69", "0")
ROCM_SD_GROUP_ROWS_MMA(40, 20, true, "%20, %21, %22, %23", "%24", "%25", "1")
ROCM_SD_GROUP_ROWS_MMA(64, 32, true, "%32, %33, %34, %35", "%36", "%37", "1")
ROCM_SD_GROUP_ROWS_MMA(80, 40, true, "%40, %41, %42, %43", "%44", "%45", "1")
ROCM_SD_GROUP_ROWS_MMA(128, 64, true, "%64, %65, %66, %67", "%68", "%69", "1")

// C [64][256] += A B with both in LDS: A rows of k, B along columns.
template <class T>
struct GroupAlongMma {
  static ROCM_SD_DEVICE void mma(float (&x)[128], uint64_t a, uint64_t b) {
    ROCM_SD_WGMMA(256, 128, "", "%128, %129, 1, 1, 1, 0, 1", "l"(a), "l"(b));
  }
};

// C [64][64] += A B^T with both in LDS as rows of k.
template <class T>
struct GroupKeysMma {
  static ROCM_SD_DEVICE void mma(float (&x)[32], uint64_t a, uint64_t b, int add) {
    ROCM_SD_WGMMA(64, 32, ROCM_SD_ADDS("%34"), "%32, %33, p, 1, 1, 0, 0", "l"(a), "l"(b), "r"(add));
  }
};

#undef ROCM_SD_FLOATS_4
#undef ROCM_SD_FLOATS_16
#undef ROCM_SD_FLOATS_20
#undef ROCM_SD_FLOATS_32
#undef ROCM_SD_FLOATS_40
#undef ROCM_SD_FLOATS_64
#undef ROCM_SD_FLOATS_128
#undef ROCM_SD_WGMMA_OF
#undef ROCM_SD_WGMMA
#undef ROCM_SD_ADDS
#undef ROCM_SD_GROUP_ROWS_MMA

}  // namespace rocm_sd
