// NVIDIA's warpgroup products of 8-bit elements (sm_90a): as nvidia_wgmma.hpp, with 32 elements of depth
// where it has 16, both operands' rows along k. PTX ISA 8, "wgmma.mma_async".
#pragma once

#include "composable_kernels/arch/eight_bit_nvidia.hpp"
#include "composable_kernels/arch/hopper_wgmma.hpp"

namespace rocm_sd {

#define ROCM_SD_ATOM(how, n)                                                                      \
  how(c[n].x[0]), how(c[n].x[1]), how(c[n].x[2]), how(c[n].x[3]), how(c[n].x[4]), how(c[n].x[5]), \
      how(c[n].x[6]), how(c[n].x[7])
#define ROCM_SD_ATOMS_4(how) \
  ROCM_SD_ATOM(how, 0), ROCM_SD_ATOM(how, 1), ROCM_SD_ATOM(how, 2), ROCM_SD_ATOM(how, 3)
#define ROCM_SD_ATOMS_8(how) \
  ROCM_SD_ATOMS_4(how), ROCM_SD_ATOM(how, 4), ROCM_SD_ATOM(how, 5), ROCM_SD_ATOM(how, 6), ROCM_SD_ATOM(how, 7)
#define ROCM_SD_ATOMS_10(how) ROCM_SD_ATOMS_8(how), ROCM_SD_ATOM(how, 8), ROCM_SD_ATOM(how, 9)
#define ROCM_SD_ATOMS_16(how)                                                                 \
  ROCM_SD_ATOMS_10(how), ROCM_SD_ATOM(how, 10), ROCM_SD_ATOM(how, 11), ROCM_SD_ATOM(how, 12), \
      ROCM_SD_ATOM(how, 13), ROCM_SD_ATOM(how, 14), ROCM_SD_ATOM(how, 15)
#define ROCM_SD_INTEGER(x) "+r"(x)
#define ROCM_SD_FLOAT(x) "+f"(x)
#define ROCM_SD_GROUP_MMA(channels, registers, rows_at, channels_at, atoms)                          \
  template <>                                                                                        \
  struct Wgmma<Int8, channels> {                                                                     \
    using C = typename MatrixAtom<Nvidia, Int8>::C;                                                  \
    static ROCM_SD_DEVICE void mma(C (&c)[channels / 16], uint64_t rows, uint64_t weights) {         \
      asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" #channels \
                   "k32.s32.s8.s8 {" registers "}, " rows_at ", " channels_at ", p;}"                \
                   : atoms(ROCM_SD_INTEGER)                                                          \
                   : "l"(rows), "l"(weights));                                                       \
    }                                                                                                \
  };                                                                                                 \
  template <>                                                                                        \
  struct Wgmma<Fp8, channels> {                                                                      \
    using C = typename MatrixAtom<Nvidia, Fp8>::C;                                                   \
    static ROCM_SD_DEVICE void mma(C (&c)[channels / 16], uint64_t rows, uint64_t weights) {         \
      asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" #channels \
                   "k32.f32.e4m3.e4m3 {" registers "}, " rows_at ", " channels_at ", p, 1, 1;}"      \
                   : atoms(ROCM_SD_FLOAT)                                                            \
                   : "l"(rows), "l"(weights));                                                       \
    }                                                                                                \
  };
ROCM_SD_GROUP_MMA(64, ROCM_SD_REGISTERS_32, "%32", "%33", ROCM_SD_ATOMS_4)
ROCM_SD_GROUP_MMA(128, ROCM_SD_REGISTERS_64, "%64", "%65", ROCM_SD_ATOMS_8)
ROCM_SD_GROUP_MMA(160, ROCM_SD_REGISTERS_80, "%80", "%81", ROCM_SD_ATOMS_10)
ROCM_SD_GROUP_MMA(256, ROCM_SD_REGISTERS_128, "%128", "%129", ROCM_SD_ATOMS_16)
#undef ROCM_SD_GROUP_MMA
#undef ROCM_SD_ATOM
#undef ROCM_SD_ATOMS_4
#undef ROCM_SD_ATOMS_8
#undef ROCM_SD_ATOMS_10
#undef ROCM_SD_ATOMS_16
#undef ROCM_SD_INTEGER
#undef ROCM_SD_FLOAT

}  // namespace rocm_sd
