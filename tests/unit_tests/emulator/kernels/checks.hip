// Faults planted for the checks, and accesses for the counts. Mode 0 is right everywhere.
#include "device.hpp"

struct Planted {
  const float* in;
  float* out;
  int n, mode;
};

// Mode 1 writes one past the end, mode 2 reads one past it.
KERNEL edges(Planted p) {
  const int i = group_x() * 64 + thread_x();
  p.out[p.mode == 1 ? i + 1 : i] = p.in[p.mode == 2 ? i + 1 : i];
}

// 128 threads. Mode 1: some lanes of a wave come to the barrier; 2: some waves skip one and come to
// the next; 3: waves come to different ones.
KERNEL barriers(Planted p) {
  SHARED static float tile[128];
  const int t = thread_x();
  tile[t] = p.in[t];
  float v = 0;
  if (p.mode == 0) barrier();
  if (p.mode == 1 && t % 32 < 16) {
    barrier();
    v += 1;
  }
  if (p.mode == 2) {
    if (__builtin_amdgcn_readfirstlane(t) < 64) {
      barrier();
      v += tile[t ^ 1];
    }
    barrier();
  }
  if (p.mode == 3) {
    if (__builtin_amdgcn_readfirstlane(t) < 64) {
      barrier();
      v += tile[t] * 2;
    } else {
      barrier();
      v -= tile[t];
    }
  }
  p.out[t] = tile[t] + v;
}

// Lanes and waves that leave before a barrier, which then does not wait for them.
KERNEL leaves_early(Planted p) {
  SHARED static float tile[128];
  const int t = thread_x();
  if (t >= p.n) return;
  tile[t] = p.in[t];
  barrier();
  p.out[t] = tile[(t + 1) % p.n];
}

// A table in scratch, of which the first p.n elements are written; reads element p.mode.
KERNEL table(Planted p) {
  float own[32];
  for (int i = 0; i < p.n; ++i) own[i] = p.in[i];
  p.out[thread_x()] = own[p.mode];
}

// A load of every kind, each of which somebody waits for. 128 threads.
KERNEL waits(Planted p) {
  SHARED static float tile[128];
  const int t = thread_x();
  tile[t] = p.in[t] * 2;
  barrier();
  p.out[t] = tile[127 - t] + 1;
}

// 128 threads: a byte that two waves write between two barriers, mode 0: the same, mode 1: another.
KERNEL rewrites(Planted p) {
  SHARED static float tile[1];
  const int t = thread_x();
  if (t % 64 == 0) tile[0] = p.in[p.mode == 0 ? 0 : t];
  barrier();
  p.out[t] = tile[0];
}

// 64 threads read LDS p.mode elements apart.
KERNEL banks(Planted p) {
  SHARED static float tile[2048];
  const int t = thread_x();
  for (int i = t; i < 2048; i += 64) tile[i] = p.in[i];
  barrier();
  p.out[t] = tile[t * p.mode % 2048];
}
