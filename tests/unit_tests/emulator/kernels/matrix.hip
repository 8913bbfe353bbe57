// Matrix instructions of each family: single tiles by type, a GEMM through LDS, attention.
#include "device.hpp"

typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x8 __attribute__((ext_vector_type(8)));
typedef float f32x16 __attribute__((ext_vector_type(16)));
typedef half f16x4 __attribute__((ext_vector_type(4)));
typedef half f16x8 __attribute__((ext_vector_type(8)));
typedef half f16x16 __attribute__((ext_vector_type(16)));
typedef short i16x4 __attribute__((ext_vector_type(4)));
typedef short i16x8 __attribute__((ext_vector_type(8)));
typedef short i16x16 __attribute__((ext_vector_type(16)));
typedef int i32x2 __attribute__((ext_vector_type(2)));
typedef int i32x4 __attribute__((ext_vector_type(4)));
typedef int i32x8 __attribute__((ext_vector_type(8)));
typedef int i32x16 __attribute__((ext_vector_type(16)));
typedef double f64x4 __attribute__((ext_vector_type(4)));

#if defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1151__) || \
    defined(__gfx1150__)
#define RDNA3 1
#elif defined(__gfx1200__) || defined(__gfx1201__)
#define RDNA4 1
#else
#define CDNA 1
#endif

// The fragment of a 16x16x16 product: elements a lane, the k of element i, the row of element i of C.
#if RDNA3
typedef f16x16 frag16;
typedef f32x8 frag_c;
#define EACH 16
#define EACH_C 8
DEVICE int k_of(int i) { return i; }
DEVICE int row_of(int i) { return 2 * i + lane() / 16; }
DEVICE frag_c mma(frag16 a, frag16 b, frag_c c) {
  return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c);
}
#elif RDNA4
typedef f16x8 frag16;
typedef f32x8 frag_c;
#define EACH 8
#define EACH_C 8
DEVICE int k_of(int i) { return i + 8 * (lane() / 16); }
DEVICE int row_of(int i) { return i + 8 * (lane() / 16); }
DEVICE frag_c mma(frag16 a, frag16 b, frag_c c) {
  return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c);
}
#else
typedef f16x4 frag16;
typedef f32x4 frag_c;
#define EACH 4
#define EACH_C 4
DEVICE int k_of(int i) { return i + 4 * (lane() / 16); }
DEVICE int row_of(int i) { return i + 4 * (lane() / 16); }
DEVICE frag_c mma(frag16 a, frag16 b, frag_c c) {
  return __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
}
#endif

struct Tile {
  const half *a, *b;  // [16][16] row-major each
  const float* c;
  float* d;
};
KERNEL tile_f16(Tile p) {
  frag16 a, b;
  frag_c c;
  const int t = lane() % 16;
  for (int i = 0; i < EACH; ++i) a[i] = p.a[t * 16 + k_of(i)], b[i] = p.b[k_of(i) * 16 + t];
  for (int i = 0; i < EACH_C; ++i) c[i] = p.c[row_of(i) * 16 + t];
  c = mma(a, b, c);
  for (int i = 0; i < EACH_C; ++i) p.d[row_of(i) * 16 + t] = c[i];
}

struct TileBf16 {
  const short *a, *b;
  float* d;
};
KERNEL tile_bf16(TileBf16 p) {  // C = 0 is a constant of the instruction
  const int t = lane() % 16;
#if RDNA3
  i16x16 a, b;
#elif RDNA4
  i16x8 a, b;
#else
  i16x4 a, b;
#endif
  for (int i = 0; i < EACH; ++i) a[i] = p.a[t * 16 + k_of(i)], b[i] = p.b[k_of(i) * 16 + t];
  const frag_c zero = {};
#if RDNA3
  const frag_c c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, zero);
#elif RDNA4
  const frag_c c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, zero);
#else
  const frag_c c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, zero, 0, 0, 0);
#endif
  for (int i = 0; i < EACH_C; ++i) p.d[row_of(i) * 16 + t] = c[i];
}

struct TileI8 {
  const signed char *a, *b;  // [16][k], [k][16]; k = 16, on gfx942 32
  int* d;
};
KERNEL tile_i8(TileI8 p) {
  const int t = lane() % 16;
#if RDNA3
  i32x4 a, b;
  for (int w = 0; w < 4; ++w) {
    int x = 0, y = 0;
    for (int i = 0; i < 4; ++i) {
      x |= (p.a[t * 16 + 4 * w + i] & 255) << 8 * i;
      y |= (p.b[(4 * w + i) * 16 + t] & 255) << 8 * i;
    }
    a[w] = x, b[w] = y;
  }
  const i32x8 c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a, true, b, i32x8{}, false);
#elif RDNA4
  i32x2 a, b;
  for (int w = 0; w < 2; ++w) {
    int x = 0, y = 0;
    for (int i = 0; i < 4; ++i) {
      const int k = 4 * w + i + 8 * (lane() / 16);
      x |= (p.a[t * 16 + k] & 255) << 8 * i;
      y |= (p.b[k * 16 + t] & 255) << 8 * i;
    }
    a[w] = x, b[w] = y;
  }
  const i32x8 c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, a, true, b, i32x8{}, false);
#elif defined(__gfx90a__)
  int x = 0, y = 0;
  for (int i = 0; i < 4; ++i) {
    const int k = i + 4 * (lane() / 16);
    x |= (p.a[t * 16 + k] & 255) << 8 * i;
    y |= (p.b[k * 16 + t] & 255) << 8 * i;
  }
  const i32x4 c = __builtin_amdgcn_mfma_i32_16x16x16i8(x, y, i32x4{}, 0, 0, 0);
#else
  ulong x = 0, y = 0;
  for (int i = 0; i < 8; ++i) {
    const int k = i + 8 * (lane() / 16);
    x |= (ulong)(p.a[t * 32 + k] & 255) << 8 * i;
    y |= (ulong)(p.b[k * 16 + t] & 255) << 8 * i;
  }
  const i32x4 c = __builtin_amdgcn_mfma_i32_16x16x32_i8((long)x, (long)y, i32x4{}, 0, 0, 0);
#endif
  for (int i = 0; i < EACH_C; ++i) p.d[row_of(i) * 16 + t] = c[i];
}

#if CDNA
struct Large {
  const half *a, *b;      // [32][8], [8][32]
  const float *fa, *fb;   // [32][2], [2][32]
  const double *da, *db;  // [16][4], [4][16]
  float* d;               // [32][32]
  float* f;               // [32][32]
  double* e;              // [16][16]
};
KERNEL tile_large(Large p) {
  const int t = lane() % 32, g = lane() / 32;
  f16x4 a, b;
  for (int i = 0; i < 4; ++i) a[i] = p.a[t * 8 + i + 4 * g], b[i] = p.b[(i + 4 * g) * 32 + t];
  f32x16 c = {};
  c = __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, 0, 0, 0);
  f32x16 f = {};
  f = __builtin_amdgcn_mfma_f32_32x32x2f32(p.fa[t * 2 + g], p.fb[g * 32 + t], f, 0, 0, 0);
  for (int i = 0; i < 16; ++i) {
    const int row = 8 * (i / 4) + 4 * g + i % 4;
    p.d[row * 32 + t] = c[i];
    p.f[row * 32 + t] = f[i];
  }
  const int s = lane() % 16, h = lane() / 16;
  f64x4 e = {};
  e = __builtin_amdgcn_mfma_f64_16x16x4f64(p.da[s * 4 + h], p.db[h * 16 + s], e, 0, 0, 0);
  for (int i = 0; i < 4; ++i) p.e[(4 * i + h) * 16 + s] = e[i];
}
#endif

struct Gemm {
  const half *a, *b;  // [m][k], [k][n]
  float* c;           // [m][n]
  int m, n, k;        // multiples of 64, 64, 32
};
// 64 x 64 a group of 128 threads; k in steps of 32 through LDS.
KERNEL gemm(Gemm p) {
  SHARED static half ta[64][40], tb[64][40];  // tb is transposed
  const int t = thread_x(), wave = t / LANES;
  const int row0 = group_y() * 64, col0 = group_x() * 64;
  constexpr int per = 16 / (128 / LANES);
  frag_c acc[per] = {};
  for (int k0 = 0; k0 < p.k; k0 += 32) {
    for (int i = t; i < 64 * 32; i += 128) {
      ta[i / 32][i % 32] = p.a[(long)(row0 + i / 32) * p.k + k0 + i % 32];
      tb[i % 64][i / 64] = p.b[(long)(k0 + i / 64) * p.n + col0 + i % 64];
    }
    barrier();
    for (int kk = 0; kk < 32; kk += 16)
      for (int i = 0; i < per; ++i) {
        const int tile = wave * per + i, r = tile / 4 * 16, c = tile % 4 * 16;
        frag16 a, b;
        for (int e = 0; e < EACH; ++e)
          a[e] = ta[r + lane() % 16][kk + k_of(e)], b[e] = tb[c + lane() % 16][kk + k_of(e)];
        acc[i] = mma(a, b, acc[i]);
      }
    barrier();
  }
  for (int i = 0; i < per; ++i) {
    const int tile = wave * per + i, r = row0 + tile / 4 * 16, c = col0 + tile % 4 * 16;
    for (int e = 0; e < EACH_C; ++e) p.c[(long)(r + row_of(e)) * p.n + c + lane() % 16] = acc[i][e];
  }
}

struct Attention {
  const half *q, *k, *v;  // [heads][tokens][64]
  float* o;
  int tokens;  // a multiple of 16
  float scale;
};
// One wave for 16 queries of a head; keys 16 at a time, softmax kept online.
KERNEL attention(Attention p) {
  SHARED static half probabilities[16][24];
  const long base = (long)group_y() * p.tokens * 64;
  const int q0 = group_x() * 16, t = lane() % 16;
  frag16 q[4];
  for (int d = 0; d < 4; ++d)
    for (int e = 0; e < EACH; ++e) q[d][e] = p.q[base + (long)(q0 + t) * 64 + d * 16 + k_of(e)];
  frag_c out[4] = {};
  float top[EACH_C], total[EACH_C];
  for (int e = 0; e < EACH_C; ++e) top[e] = -__builtin_inff(), total[e] = 0;
  for (int k0 = 0; k0 < p.tokens; k0 += 16) {
    frag_c s = {};
    for (int d = 0; d < 4; ++d) {
      frag16 k;
      for (int e = 0; e < EACH; ++e) k[e] = p.k[base + (long)(k0 + t) * 64 + d * 16 + k_of(e)];
      s = mma(q[d], k, s);
    }
    for (int e = 0; e < EACH_C; ++e) {
      const float v = s[e] * p.scale;
      float m = v;
      for (int x = 8; x; x /= 2) m = __builtin_fmaxf(m, shuffle_xor(m, x));
      m = __builtin_fmaxf(m, top[e]);
      const float w = __builtin_expf(v - m), shrink = __builtin_expf(top[e] - m);
      float sum = w;
      for (int x = 8; x; x /= 2) sum += shuffle_xor(sum, x);
      total[e] = total[e] * shrink + sum;
      top[e] = m;
      probabilities[row_of(e)][t] = (half)w;
      for (int d = 0; d < 4; ++d) out[d][e] *= shrink;
    }
    barrier();
    frag16 w;
    for (int e = 0; e < EACH; ++e) w[e] = probabilities[t][k_of(e)];
    for (int d = 0; d < 4; ++d) {
      frag16 v;
      for (int e = 0; e < EACH; ++e) v[e] = p.v[base + (long)(k0 + k_of(e)) * 64 + d * 16 + t];
      out[d] = mma(w, v, out[d]);
    }
    barrier();
  }
  for (int d = 0; d < 4; ++d)
    for (int e = 0; e < EACH_C; ++e)
      p.o[base + (long)(q0 + row_of(e)) * 64 + d * 16 + t] = out[d][e] / total[e];
}
