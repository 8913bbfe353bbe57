// Plain kernels: arithmetic of every width, ids, atomics, scratch, jump tables.
#include "device.hpp"

struct VectorAdd {
  const float *a, *b;
  float* c;
  int n;
};
KERNEL vector_add(VectorAdd p) {
  const int i = group_x() * 256 + thread_x();
  if (i < p.n) p.c[i] = p.a[i] + p.b[i];
}

struct LaunchIds {
  uint* out;  // [groups][threads][6]
  uint gx, gy, bx, by, bz;
};
KERNEL launch_ids(LaunchIds p) {
  const uint group = group_x() + p.gx * (group_y() + p.gy * group_z());
  const uint thread = thread_x() + p.bx * (thread_y() + p.by * thread_z());
  uint* out = p.out + (ulong)(group * p.bx * p.by * p.bz + thread) * 6;
  out[0] = thread_x(), out[1] = thread_y(), out[2] = thread_z();
  out[3] = group_x(), out[4] = group_y(), out[5] = group_z();
}

struct Division {
  const long *a, *b;
  long *quotient, *remainder;
  ulong *uquotient, *uremainder;
  int *q32, *r32;
  uint *uq32, *ur32;
  int n;
};
KERNEL division(Division p) {
  const int i = group_x() * 64 + thread_x();
  if (i >= p.n) return;
  const long a = p.a[i], b = p.b[i];
  p.quotient[i] = a / b, p.remainder[i] = a % b;
  p.uquotient[i] = (ulong)a / (ulong)b, p.uremainder[i] = (ulong)a % (ulong)b;
  const int a32 = (int)a, b32 = (int)b ? (int)b : 1;
  if (a32 != (-2147483647 - 1) || b32 != -1) p.q32[i] = a32 / b32, p.r32[i] = a32 % b32;
  p.uq32[i] = (uint)a32 / (uint)b32, p.ur32[i] = (uint)a32 % (uint)b32;
}

struct Float64 {
  const double *a, *b;
  double* out;  // [8][n]
  int n;
};
KERNEL float64(Float64 p) {
  const int i = group_x() * 64 + thread_x();
  if (i >= p.n) return;
  const double a = p.a[i], b = p.b[i];
  p.out[i] = a / b;
  p.out[p.n + i] = __builtin_sqrt(a < 0 ? -a : a);
  p.out[2 * p.n + i] = __builtin_fma(a, b, -a);
  p.out[3 * p.n + i] = __builtin_floor(a) + __builtin_rint(b) * 0.25;
  p.out[4 * p.n + i] = __builtin_fmin(a, b) * 3.0 - __builtin_fmax(a, b);
  p.out[5 * p.n + i] = (double)(int)(a * 100.0) + (double)(uint)(b < 0 ? -b : b) + (double)(float)a;
  p.out[6 * p.n + i] = (double)(long)(a * 1e12);
  p.out[7 * p.n + i] = __builtin_ldexp(a, i % 40 - 20) + 0x1.23456789abcdep+3;
}

struct Float32 {
  const float *a, *b;
  float* out;  // [8][n]
  int n;
};
KERNEL float32(Float32 p) {
  const int i = group_x() * 64 + thread_x();
  if (i >= p.n) return;
  const float a = p.a[i], b = p.b[i];
  p.out[i] = a / b;
  p.out[p.n + i] = __builtin_sqrtf(__builtin_fabsf(a));
  p.out[2 * p.n + i] = __builtin_fmaf(a, b, -a);
  p.out[3 * p.n + i] = __builtin_floorf(a) + __builtin_rintf(b) * 0.25f;
  p.out[4 * p.n + i] = __builtin_fminf(a, b) * 3.0f - __builtin_fmaxf(a, b);
  p.out[5 * p.n + i] = (float)(long)(a * 1e3f) + (float)(ulong)(b < 0 ? -b : b);
  p.out[6 * p.n + i] = __builtin_ldexpf(a, i % 40 - 20);
  p.out[7 * p.n + i] = (a > b ? a : -b) - __builtin_truncf(a) + __builtin_ceilf(b);
}

struct Bits {
  const uint* a;
  uint* out;     // [10][n]
  ulong* out64;  // [4][n]
  int n;
};
KERNEL bits(Bits p) {
  const int i = group_x() * 64 + thread_x();
  if (i >= p.n) return;
  const uint a = p.a[i], b = p.a[(i + 1) % p.n];
  const uint s = b % 32;
  const ulong wide = (ulong)a << 32 | b;
  p.out[i] = __builtin_popcount(a) + 7;
  p.out[p.n + i] = a ? __builtin_clz(a) : 32;
  p.out[2 * p.n + i] = a ? __builtin_ctz(a) : 32;
  p.out[3 * p.n + i] = __builtin_bitreverse32(a);
  p.out[4 * p.n + i] = (a << s) ^ (b >> (a % 32)) ^ (uint)((int)a >> s);
  p.out[5 * p.n + i] = __builtin_rotateleft32(a, s);
  p.out[6 * p.n + i] = __builtin_bswap32(a) + (a & 0xff00ff) * 3;
  p.out[7 * p.n + i] = (uint)(((ulong)a * b) >> 32) ^ (uint)(((long)(int)a * (int)b) >> 32);
  p.out[8 * p.n + i] = (a & b) | (~a & 0x0ff00ff0);
  p.out[9 * p.n + i] =
      (uint)((int)(a << 7) >> 20) + (a >> 5 & 0x1ff) + (uint)(unsigned short)(a * b) + (uint)(signed char)b;
  p.out64[i] = wide << (a % 64);
  p.out64[p.n + i] = wide >> (a % 64);
  p.out64[2 * p.n + i] = (ulong)((long)wide >> (b % 64));
  p.out64[3 * p.n + i] =
      wide * 0x9e3779b97f4a7c15ull + __builtin_popcountll(wide) + (wide ? __builtin_clzll(wide) : 64);
}

struct Histogram {
  const uint* values;
  uint* counts;    // [64]
  uint* extremes;  // min, max, or, xor
  float* sum;      // 1
  ulong* sum64;    // 1
  int n;
};
KERNEL histogram(Histogram p) {
  SHARED static uint local[64];
  const uint t = thread_x();
  if (t < 64) local[t] = 0;
  barrier();
  for (uint i = group_x() * 256 + t; i < (uint)p.n; i += 1024) {
    const uint v = p.values[i];
    __atomic_fetch_add(&local[v % 64], 1u, __ATOMIC_RELAXED);
    __hip_atomic_fetch_min(&p.extremes[0], v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_max(&p.extremes[1], v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_or(&p.extremes[2], v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_xor(&p.extremes[3], v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_add(p.sum, (float)(v % 16), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_add(p.sum64, (ulong)v << 20, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  }
  barrier();
  if (t < 64) __hip_atomic_fetch_add(&p.counts[t], local[t], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

struct Sort {
  const int* in;  // [n][24]
  int* out;
  int n;
};
KERNEL scratch_sort(Sort p) {
  const int i = group_x() * 64 + thread_x();
  if (i >= p.n) return;
  int keys[24];
  for (int k = 0; k < 24; ++k) keys[k] = p.in[i * 24 + k];
  for (int k = 1; k < 24; ++k) {
    int j = k;
    const int key = keys[k];
    for (; j > 0 && keys[j - 1] > key; --j) keys[j] = keys[j - 1];
    keys[j] = key;
  }
  for (int k = 0; k < 24; ++k) p.out[i * 24 + k] = keys[(k * 7 + i) % 24];
}

struct Switch {
  const uint* in;
  uint* out;
  int n;
};
__attribute__((device, noinline)) uint deep(uint v, uint depth) { return depth ? v * 3 + depth : v; }
KERNEL jump_table(Switch p) {
  static const __attribute__((device)) uint kTable[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
  const int i = group_x() * 64 + thread_x();
  if (i >= p.n) return;
  const uint v = p.in[i];
  uint r = kTable[v % 16];
  switch (v % 9) {
    case 0: r = r * 7 + v; break;
    case 1: r ^= v << 3; break;
    case 2: r = v / (r + 1); break;
    case 3: r = deep(v, r); break;
    case 4: r -= v; break;
    case 5: r = ~v; break;
    case 6: r = deep(r, v); break;
    case 7: r = (v >> 3) * r; break;
    default: r += 100;
  }
  p.out[i] = r;
}

struct Small {
  const short* a;
  const short* b;
  short* out;  // [6][n]
  signed char* bytes;
  int n;
};
KERNEL small_integers(Small p) {
  const int i = group_x() * 64 + thread_x();
  if (i >= p.n) return;
  const short a = p.a[i], b = p.b[i];
  p.out[i] = a + b;
  p.out[p.n + i] = a * b - (a >> 3);
  p.out[2 * p.n + i] = a > b ? a : b;
  p.out[3 * p.n + i] = (unsigned short)a < (unsigned short)b ? a << 2 : (unsigned short)b >> 1;
  // As vectors: scalars would be promoted to int.
  typedef short short2 __attribute__((ext_vector_type(2)));
  typedef unsigned short ushort2 __attribute__((ext_vector_type(2)));
  p.out[4 * p.n + i] = __builtin_elementwise_add_sat(short2{a, b}, short2{b, b}).x;
  p.out[5 * p.n + i] =
      __builtin_elementwise_sub_sat(ushort2{(unsigned short)a, 0}, ushort2{(unsigned short)b, 1}).x;
  p.bytes[i] = (signed char)(a ^ b >> 4);
}
