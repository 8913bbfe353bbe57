// What kernels of others do and this project's do not: recursion, calls that use the stack, clocks, barriers
// of the whole grid, endless loops, counters in LDS, and what the checks must leave alone or find.
#include "device.hpp"

struct Args {
  const uint* in;
  uint* out;
  int n, mode;
};

// ---- the stack ----
__attribute__((device, noinline)) int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
KERNEL recursion(Args p) {
  const int t = thread_x();
  p.out[t] = fibonacci(t % p.n);
}
// 64 numbers in scratch, filled by one function and added up in another: both have frames of their own.
__attribute__((device, noinline)) void fill(uint* to, const uint* from, int n) {
  uint own[8];
  for (int i = 0; i < 8; ++i) own[i] = from[i] * 3;
  for (int i = 0; i < n; ++i) to[i] = own[i % 8] + i;
}
__attribute__((device, noinline)) uint add_up(const uint* of, int n) {
  uint sums[4] = {0, 0, 0, 0};
  for (int i = 0; i < n; ++i) sums[of[i] & 3] += of[i];
  return sums[0] + 2 * sums[1] + 3 * sums[2] + 4 * sums[3];
}
KERNEL frames(Args p) {
  uint table[64];
  fill(table, p.in + thread_x(), p.n);
  p.out[thread_x()] = add_up(table, p.n);
}

// ---- clocks ----
KERNEL waits_by_the_clock(Args p) {
  const ulong begin = __builtin_readsteadycounter();
  uint turns = 0;
  while (__builtin_readsteadycounter() - begin < 1000) ++turns;
  const ulong cycles = __builtin_readcyclecounter();
  while (__builtin_readcyclecounter() == cycles) ++turns;
  p.out[thread_x()] = turns;
}

// ---- groups that wait for one another ----
KERNEL grid_barrier(Args p) {
  uint* arrived = p.out;  // one counter a round
  for (int round = 0; round < p.n; ++round) {
    if (thread_x() == 0)
      __hip_atomic_fetch_add(arrived + round, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
    while (__hip_atomic_load(arrived + round, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < (uint)p.mode) {
    }
    barrier();
  }
}
// Mode 0: for ever; 1: the first wave waits at a barrier that the others never come to.
KERNEL endless(Args p) {
  volatile uint* flag = p.out;
  if (p.mode == 1 && thread_x() < 64) barrier();
  while (*flag == 0) {
  }
}

// ---- calls of the host ----
KERNEL asks_the_host(Args p) {
  const auto implicit = (ulong*)__builtin_amdgcn_implicitarg_ptr();
  if (p.mode == 1) {
    uint* buffer = (uint*)implicit[10];  // hidden_hostcall_buffer
    p.out[0] = *buffer;
  }
  p.out[thread_x()] = p.in[thread_x()];
}

// ---- LDS ----
KERNEL counters(Args p) {
  SHARED static uint counter[2];
  const int t = thread_x();
  if (t < 2) counter[t] = 100;
  barrier();
  uint first = 0, second = 0;
  if (t % 3 == 0) first = __builtin_amdgcn_ds_append((__attribute__((address_space(3))) int*)&counter[0]);
  if (t % 2 == 0) second = __builtin_amdgcn_ds_consume((__attribute__((address_space(3))) int*)&counter[1]);
  barrier();
  p.out[2 * t] = first;
  p.out[2 * t + 1] = second;
  if (t == 0) {
    p.out[256] = counter[0];
    p.out[257] = counter[1];
  }
}
// A maximum of floats by compare and swap: its first look is a plain load.
KERNEL swaps(Args p) {
  SHARED static uint best;
  const int t = thread_x();
  if (t == 0) best = 0;
  barrier();
  uint old = __hip_atomic_load(&best, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  while (!__hip_atomic_compare_exchange_strong(&best, &old, old > p.in[t] ? old : p.in[t], __ATOMIC_RELAXED,
                                               __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP)) {
  }
  barrier();
  p.out[t] = best;
}
// 128 threads. Mode 0: a barrier between plain reads and another wave's atomics; 1: none, the atomics come
// after; 2: before.
KERNEL reads_beside_atomics(Args p) {
  SHARED static uint cell;
  const int t = thread_x();
  if (t == 0) cell = 1;
  barrier();
  uint seen = 0;
  const bool first = __builtin_amdgcn_readfirstlane(t) < 64;
  if (p.mode == 2 && first) __hip_atomic_fetch_add(&cell, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  if (p.mode == 2 ? !first : first) seen = *(volatile uint*)&cell;
  if (p.mode == 0) barrier();
  if (p.mode != 2 && !first)
    __hip_atomic_fetch_add(&cell, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  barrier();
  p.out[t] = cell + seen;
}
struct __attribute__((packed)) Quad {
  uint v[4];
};
// Sixteen bytes at a time, at addresses that are multiples of one.
KERNEL unaligned_lds(Args p) {
  SHARED static unsigned char bytes[64 * 17 + 1];
  const int t = thread_x();
  *(Quad*)(bytes + 17 * t + p.mode) = *(const Quad*)(p.in + 4 * t);
  barrier();
  *(Quad*)(p.out + 4 * t) = *(const Quad*)(bytes + 17 * (63 - t) + p.mode);
}

// ---- chains of matrix instructions, with the waits that the compiler puts between ----
#if defined(__gfx90a__) || defined(__gfx942__)
typedef float f4 __attribute__((ext_vector_type(4)));
typedef float f16v __attribute__((ext_vector_type(16)));
typedef float f2 __attribute__((ext_vector_type(2)));
typedef _Float16 h4 __attribute__((ext_vector_type(4)));
typedef _Float16 h8 __attribute__((ext_vector_type(8)));
typedef int i4 __attribute__((ext_vector_type(4)));

DEVICE f4 one(f4 a, f4 b, f4 c, uint index) {
  const h4 ha = __builtin_convertvector(a, h4), hb = __builtin_convertvector(b, h4);
  f4 d = __builtin_amdgcn_mfma_f32_16x16x16f16(ha, hb, c, 0, 0, 0);
  d = __builtin_amdgcn_mfma_f32_16x16x16f16(hb, ha, d, 0, 0, 0);     // into the same sum
  d = __builtin_amdgcn_mfma_f32_16x16x4f32(d[0], d[1], d, 0, 0, 0);  // its result as operands
  d = __builtin_amdgcn_mfma_f32_4x4x4f16(__builtin_convertvector(d, h4), ha, d, 0, 0, 0);
#if defined(__gfx942__)
  d = __builtin_amdgcn_mfma_f32_16x16x8_xf32(f2{d[0], d[1]}, f2{d[2], d[3]}, d, 0, 0, 0);
  d = __builtin_amdgcn_mfma_f32_16x16x8_xf32(f2{d[0], d[1]}, f2{a[2], a[3]}, d, 0, 0, 0);
  const h8 wide = {hb[0], hb[1], hb[2], hb[3], ha[0], ha[1], ha[2], ha[3]};
  d = __builtin_amdgcn_smfmac_f32_16x16x32_f16(ha, wide, d, index, 0, 0);
  d = __builtin_amdgcn_smfmac_f32_16x16x32_f16(ha, wide, d, index + 1, 0, 0);
  d = __builtin_amdgcn_smfmac_f32_16x16x32_f16(__builtin_convertvector(d, h4), wide, d,
                                               __builtin_bit_cast(uint, d[1]), 0, 0);
  d = __builtin_amdgcn_mfma_f32_16x16x8_xf32(f2{d[0], d[1]}, f2{d[2], d[3]}, d, 0, 0, 0);
#endif
  (void)index;  // gfx90a has no sparse products
  return d;
}
DEVICE f16v large(f4 a, f16v c, uint index) {
  const h4 ha = __builtin_convertvector(a, h4);
  f16v d = __builtin_amdgcn_mfma_f32_32x32x8f16(ha, ha, c, 0, 0, 0);
  d = __builtin_amdgcn_mfma_f32_32x32x2f32(d[0], d[15], d, 0, 0, 0);
#if defined(__gfx942__)
  d = __builtin_amdgcn_mfma_f32_32x32x4_xf32(f2{d[0], d[3]}, f2{d[7], d[15]}, d, 0, 0, 0);
  const h8 wide = {ha[0], ha[1], ha[2], ha[3], ha[0], ha[1], ha[2], ha[3]};
  d = __builtin_amdgcn_smfmac_f32_32x32x16_f16(ha, wide, d, index, 0, 0);
  d = __builtin_amdgcn_smfmac_f32_32x32x16_f16(ha, wide, d, __builtin_bit_cast(uint, d[3]), 0, 0);
#endif
  (void)index;
  return d;
}
KERNEL matrix_chains(Args p) {
  const int t = thread_x();
  const f4 a = *(const f4*)(p.in + 4 * t);
  f4 c = {0, 0, 0, 0};
  f16v big;
  for (int i = 0; i < 16; ++i) big[i] = a[i % 4];
  for (int i = 0; i < p.n; ++i) {
    c = one(a, c, c, p.in[i]);
    big = large(c, big, p.in[i]);
  }
  *(f4*)(p.out + 8 * t) = c;
  *(f4*)(p.out + 8 * t + 4) = f4{big[0], big[5], big[10], big[15]};
}
#else
KERNEL matrix_chains(Args p) { p.out[thread_x()] = 0; }
#endif

// ---- 16 x 16 halves, transposed while they are loaded (RDNA 4) ----
#if defined(__gfx1200__) || defined(__gfx1201__)
typedef short s8 __attribute__((ext_vector_type(8)));
KERNEL transposed_load(Args p) {
  const int lane = thread_x();
  const s8 got = __builtin_amdgcn_global_load_tr_b128_v8i16((__attribute__((
      address_space(1))) s8*)((ulong)p.in + 2 * ((8 * (lane / 16) + lane % 8) * p.n + lane / 8 % 2 * 8)));
  *(s8*)((ulong)p.out + 16 * lane) = got;
}
#else
KERNEL transposed_load(Args p) { p.out[thread_x()] = 0; }
#endif
