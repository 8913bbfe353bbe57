// Kernels whose lanes and waves work together: reductions, scans, shuffles, LDS.
#include "device.hpp"

struct Rows {
  const float* x;
  float* y;
  int rows, cols;
};
// One group of 128 threads a row.
KERNEL softmax(Rows p) {
  SHARED static float part[8];
  const float* x = p.x + (long)group_x() * p.cols;
  float* y = p.y + (long)group_x() * p.cols;
  const int t = thread_x(), wave = t / LANES, waves = 128 / LANES;
  float top = -__builtin_inff();
  for (int c = t; c < p.cols; c += 128) top = __builtin_fmaxf(top, x[c]);
  top = wave_max(top);
  if (lane() == 0) part[wave] = top;
  barrier();
  for (int i = 0; i < waves; ++i) top = __builtin_fmaxf(top, part[i]);
  barrier();
  float sum = 0;
  for (int c = t; c < p.cols; c += 128) sum += __builtin_expf(x[c] - top);
  sum = wave_sum(sum);
  if (lane() == 0) part[wave] = sum;
  barrier();
  sum = 0;
  for (int i = 0; i < waves; ++i) sum += part[i];
  for (int c = t; c < p.cols; c += 128) y[c] = __builtin_expf(x[c] - top) / sum;
}

struct GroupNorm {
  const half* x;  // [n][hw][c]
  const float *gain, *bias;
  half* y;
  int hw, c, groups;
  float eps;
};
// One group of 256 threads for each image and channel group; dynamic LDS holds a float a wave.
extern __attribute__((shared)) float dynamic_lds[];
KERNEL group_norm_silu(GroupNorm p) {
  const int per = p.c / p.groups, image = group_y(), group = group_x(), t = thread_x();
  const half* x = p.x + (long)image * p.hw * p.c + group * per;
  half* y = p.y + (long)image * p.hw * p.c + group * per;
  const int count = p.hw * per;
  float sum = 0;
  for (int i = t; i < count; i += 256) sum += (float)x[(long)(i / per) * p.c + i % per];
  sum = wave_sum(sum);
  if (lane() == 0) dynamic_lds[t / LANES] = sum;
  barrier();
  float mean = 0;
  for (int i = 0; i < 256 / LANES; ++i) mean += dynamic_lds[i];
  mean /= count;
  barrier();
  float squares = 0;
  for (int i = t; i < count; i += 256) {
    const float d = (float)x[(long)(i / per) * p.c + i % per] - mean;
    squares += d * d;
  }
  squares = wave_sum(squares);
  if (lane() == 0) dynamic_lds[t / LANES] = squares;
  barrier();
  float var = 0;
  for (int i = 0; i < 256 / LANES; ++i) var += dynamic_lds[i];
  const float rstd = 1.0f / __builtin_sqrtf(var / count + p.eps);
  for (int i = t; i < count; i += 256) {
    const int ch = group * per + i % per;
    const float v = ((float)x[(long)(i / per) * p.c + i % per] - mean) * rstd * p.gain[ch] + p.bias[ch];
    y[(long)(i / per) * p.c + i % per] = (half)(v / (1.0f + __builtin_expf(-v)));
  }
}

struct Lanes {
  const int* in;  // [64]
  int* out;       // [16][64]
};
DEVICE int dpp_add(int v, int moved) { return v + moved; }
#define DPP(v, control, rows, banks, zero) __builtin_amdgcn_update_dpp(0, v, control, rows, banks, zero)
// One wave of 64 threads (two of 32).
KERNEL lane_moves(Lanes p) {
  const int t = thread_x();
  const int v = p.in[t];
  int* out = p.out + t;
  out[0 * 64] = DPP(v, 0x1b, 15, 15, false);                                 // quad_perm:[3,2,1,0]
  out[1 * 64] = DPP(v, 0x111, 15, 15, true);                                 // row_shr:1
  out[2 * 64] = DPP(v, 0x103, 15, 15, true);                                 // row_shl:3
  out[3 * 64] = DPP(v, 0x125, 15, 15, false);                                // row_ror:5
  out[4 * 64] = DPP(v, 0x140, 15, 15, false);                                // row_mirror
  out[5 * 64] = DPP(v, 0x141, 15, 15, false);                                // row_half_mirror
  out[6 * 64] = __builtin_amdgcn_update_dpp(-7, v, 0x112, 0x5, 0x9, false);  // row_shr:2, old value kept
  out[7 * 64] = __builtin_amdgcn_ds_swizzle(v, 0x041f);                      // xor 1
  out[8 * 64] = __builtin_amdgcn_ds_permute((t * 7 % 32) * 4, v);
  out[9 * 64] = __builtin_amdgcn_ds_bpermute((t * 5 + 3) * 4, v);
  out[10 * 64] = __builtin_amdgcn_readlane(v, 13);
  out[11 * 64] = __builtin_amdgcn_readfirstlane(v + 1);
  out[12 * 64] = __builtin_amdgcn_ds_swizzle(v, 0x8000 | 0x4e);  // quad [2,3,0,1]
  // An inclusive scan of each row of 16.
  int scan = v;
  scan += DPP(scan, 0x111, 15, 15, true);
  scan += DPP(scan, 0x112, 15, 15, true);
  scan += DPP(scan, 0x114, 15, 15, true);
  scan += DPP(scan, 0x118, 15, 15, true);
  out[13 * 64] = scan;
#if __AMDGCN_WAVEFRONT_SIZE == 64
  out[14 * 64] = DPP(scan, 0x142, 0xa, 15, false);  // row_bcast:15
  out[15 * 64] = DPP(v, 0x143, 0xc, 15, false);     // row_bcast:31
#else
  out[14 * 64] = __builtin_amdgcn_permlanex16(v, v, 0x76543210, 0xfedcba98, false, false);
  out[15 * 64] = __builtin_amdgcn_permlane16(v, v, 0x89abcdef, 0x01234567, false, false);
#endif
}

struct Ballot {
  const int* in;
  ulong* out;
};
KERNEL ballots(Ballot p) {
  const int t = thread_x();
  const int v = p.in[t];
  if (v % 3 != 0) {  // part of the lanes
    const ulong odd = __builtin_amdgcn_ballot_w64(v & 1);
    p.out[t] = odd;
    if (v > 40)
      p.out[64 + t] = (ulong)__builtin_amdgcn_readfirstlane(v) << 32 | (uint)__builtin_popcountll(odd);
  }
}

struct Transpose {
  const float* in;
  float* out;
  int n;
};
// Tiles of 32 x 32 through LDS, 32 x 8 threads.
KERNEL transpose(Transpose p) {
  SHARED static float tile[32][33];
  const int x = group_x() * 32 + thread_x(), y = group_y() * 32;
  for (int j = thread_y(); j < 32; j += 8)
    if (x < p.n && y + j < p.n) tile[j][thread_x()] = p.in[(long)(y + j) * p.n + x];
  barrier();
  const int tx = group_y() * 32 + thread_x(), ty = group_x() * 32;
  for (int j = thread_y(); j < 32; j += 8)
    if (tx < p.n && ty + j < p.n) p.out[(long)(ty + j) * p.n + tx] = tile[thread_x()][j];
}

struct Faulty {
  float* data;
  int n, mode;
};
// Out of bounds on purpose: mode 1 writes one past the end, mode 2 reads far away, mode 3 leaves LDS.
KERNEL faulty(Faulty p) {
  SHARED static float local[64];
  const int i = thread_x();
  local[i] = p.data[i];
  barrier();
  if (p.mode == 1) p.data[i + 1] = local[63 - i];
  if (p.mode == 2) p.data[i] = *(p.data + (1l << 40) + i);
  if (p.mode == 3) p.data[i] = local[i + p.n * 1024];
  if (p.mode == 4) __builtin_trap();
}

struct Planted {
  const float* in;
  float* out;
  int n, mode;
};
// Faults that a card hides. 128 threads. Mode 0 is right; 1 leaves out a barrier; 2 reads LDS that nobody
// wrote; 3 writes before the others have read; 4 is right, but strides over memory.
KERNEL planted(Planted p) {
  SHARED static float tile[256];
  const int t = thread_x();
  tile[t] = p.in[p.mode == 4 ? t * 32 % 4096 : t];
  if (p.mode != 1) barrier();
  float v = tile[127 - t];
  if (p.mode == 2) v += tile[128 + t];
  if (p.mode != 3) barrier();
  tile[t] = v * 2;
  p.out[t] = tile[t];
}
