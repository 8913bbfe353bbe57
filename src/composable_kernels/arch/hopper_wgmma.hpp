// NVIDIA's warpgroup products (sm_90a): four waves multiply 64 rows by kN columns from LDS, asynchronously.
// Swapped as in nvidia.hpp: the instruction's A is our B (64 tokens or pixels), its B our A (kN channels), so
// that a lane's fragment is that of kN / 16 atoms. Layouts: PTX ISA 8, "wgmma.mma_async", "Shared memory
// matrix layout".
#pragma once

#include "composable_kernels/arch/nvidia.hpp"
#include "composable_kernels/arch/nvidia_registers.hpp"

namespace rocm_sd {

struct Warpgroup {
  // Before the first product, and after other code has touched the accumulators.
  static ROCM_SD_DEVICE void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
  static ROCM_SD_DEVICE void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
  // Waits until at most kPending committed groups of products are under way.
  template <int kPending>
  static ROCM_SD_DEVICE void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
  }
  // What this thread wrote to LDS becomes visible to products, after a barrier.
  static ROCM_SD_DEVICE void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

  // A tile of rows of 128 bytes in LDS, aligned to 1024, whose 16-byte pieces are at piece ^ (row % 8). It
  // may begin at any row of one that is aligned so, and `stride` bytes are from one 8 rows to the next.
  static ROCM_SD_DEVICE uint64_t tile(const void* lds, int stride = 1024) {
    const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(lds));
    // Address, stride of 8 rows (both in units of 16 bytes), 128-byte swizzle.
    return static_cast<uint64_t>((at & 0x3ffff) >> 4) | uint64_t{1} << 16 |
           static_cast<uint64_t>(stride >> 4) << 32 | uint64_t{1} << 62;
  }
  static constexpr uint64_t kNextDepth = 32 >> 4;  // added to a tile: 16 elements further along k
  // The same in two halves: the place of the tile at `at` of LDS, to which offsets of bytes / 16 may be
  // added, and what else there is to say, which a compiler then knows.
  static ROCM_SD_DEVICE uint32_t place(const void* lds) {
    return (static_cast<uint32_t>(__cvta_generic_to_shared(lds)) & 0x3ffff) >> 4 | uint32_t{1} << 16;
  }
  template <int kStride>
  static ROCM_SD_DEVICE uint64_t tile_at(uint32_t place) {
    return uint64_t{kStride >> 4 | 1 << 30} << 32 | place;
  }
};

// c += rows (64) x channels (kN), 16 of depth. c[n]: the atom of channels 16n .. 16n + 15.
template <class T, int kN>
struct Wgmma;

#define ROCM_SD_ATOM(n)                                                                                 \
  "+f"(c[n].x[0]), "+f"(c[n].x[1]), "+f"(c[n].x[2]), "+f"(c[n].x[3]), "+f"(c[n].x[4]), "+f"(c[n].x[5]), \
      "+f"(c[n].x[6]), "+f"(c[n].x[7])
// `keep`: 0 where what c holds is replaced.
#define ROCM_SD_GROUP_MMA(channels, registers, rows_at, channels_at, keep_at, ...)                      \
  template <class T>                                                                                    \
  struct Wgmma<T, channels> {                                                                           \
    using C = typename Atom<Nvidia, T>::C;                                                              \
    static ROCM_SD_DEVICE void mma(C (&c)[channels / 16], uint64_t rows, uint64_t weights) {            \
      if constexpr (std::is_same_v<T, Bf16>)                                                            \
        asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" #channels  \
                     "k16.f32.bf16.bf16 {" registers "}, " rows_at ", " channels_at ", p, 1, 1, 0, 0;}" \
                     : __VA_ARGS__                                                                      \
                     : "l"(rows), "l"(weights));                                                        \
      else                                                                                              \
        asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" #channels  \
                     "k16.f32.f16.f16 {" registers "}, " rows_at ", " channels_at ", p, 1, 1, 0, 0;}"   \
                     : __VA_ARGS__                                                                      \
                     : "l"(rows), "l"(weights));                                                        \
    }                                                                                                   \
    static ROCM_SD_DEVICE void mma(C (&c)[channels / 16], uint64_t rows, uint64_t weights, int keep) {  \
      if constexpr (std::is_same_v<T, Bf16>)                                                            \
        asm volatile("{.reg .pred p; setp.ne.b32 p, " keep_at                                           \
                     ", 0; "                                                                            \
                     "wgmma.mma_async.sync.aligned.m64n" #channels "k16.f32.bf16.bf16 {" registers      \
                     "}, " rows_at ", " channels_at ", p, 1, 1, 0, 0;}"                                 \
                     : __VA_ARGS__                                                                      \
                     : "l"(rows), "l"(weights), "r"(keep));                                             \
      else                                                                                              \
        asm volatile("{.reg .pred p; setp.ne.b32 p, " keep_at                                           \
                     ", 0; "                                                                            \
                     "wgmma.mma_async.sync.aligned.m64n" #channels "k16.f32.f16.f16 {" registers        \
                     "}, " rows_at ", " channels_at ", p, 1, 1, 0, 0;}"                                 \
                     : __VA_ARGS__                                                                      \
                     : "l"(rows), "l"(weights), "r"(keep));                                             \
    }                                                                                                   \
  };
// clang-format off
ROCM_SD_GROUP_MMA(32, ROCM_SD_REGISTERS_16, "%16", "%17", "%18", ROCM_SD_ATOM(0), ROCM_SD_ATOM(1))
ROCM_SD_GROUP_MMA(64, ROCM_SD_REGISTERS_32, "%32", "%33", "%34", ROCM_SD_ATOM(0), ROCM_SD_ATOM(1), ROCM_SD_ATOM(2), ROCM_SD_ATOM(3))
ROCM_SD_GROUP_MMA(128, ROCM_SD_REGISTERS_64, "%64", "%65", "%66", ROCM_SD_ATOM(0), ROCM_SD_ATOM(1), ROCM_SD_ATOM(2), ROCM_SD_ATOM(3), ROCM_SD_ATOM(4), ROCM_SD_ATOM(5), ROCM_SD_ATOM(6), ROCM_SD_ATOM(7))
ROCM_SD_GROUP_MMA(160, ROCM_SD_REGISTERS_80, "%80", "%81", "%82", ROCM_SD_ATOM(0), ROCM_SD_ATOM(1), ROCM_SD_ATOM(2), ROCM_SD_ATOM(3), ROCM_SD_ATOM(4), ROCM_SD_ATOM(5), ROCM_SD_ATOM(6), ROCM_SD_ATOM(7), ROCM_SD_ATOM(8), ROCM_SD_ATOM(9))
ROCM_SD_GROUP_MMA(256, ROCM_SD_REGISTERS_128, "%128", "%129", "%130", ROCM_SD_ATOM(0), ROCM_SD_ATOM(1), ROCM_SD_ATOM(2), ROCM_SD_ATOM(3), ROCM_SD_ATOM(4), ROCM_SD_ATOM(5), ROCM_SD_ATOM(6), ROCM_SD_ATOM(7), ROCM_SD_ATOM(8), ROCM_SD_ATOM(9), ROCM_SD_ATOM(10), ROCM_SD_ATOM(11), ROCM_SD_ATOM(12), ROCM_SD_ATOM(13), ROCM_SD_ATOM(14), ROCM_SD_ATOM(15))
// clang-format on
#undef ROCM_SD_GROUP_MMA
#undef ROCM_SD_ATOM

// Keeps the compiler from reading accumulators before the wait that precedes this.
template <class C, int kAtoms>
ROCM_SD_DEVICE void settle(C (&c)[kAtoms]) {
  ROCM_SD_UNROLL
  for (int n = 0; n < kAtoms; ++n) ROCM_SD_UNROLL
  for (int i = 0; i < 8; ++i) {
    if constexpr (std::is_same_v<decltype(C::x), float[8]>)
      asm volatile("" : "+f"(c[n].x[i])::"memory");
    else
      asm volatile("" : "+r"(c[n].x[i])::"memory");
  }
}

}  // namespace rocm_sd
