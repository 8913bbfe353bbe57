// What the emulator's test kernels need of HIP, by clang's builtins alone.
#pragma once

#define KERNEL extern "C" __attribute__((global)) void
#define DEVICE __attribute__((device)) inline
#define SHARED __attribute__((shared))

typedef _Float16 half;
typedef half half2 __attribute__((ext_vector_type(2)));
typedef unsigned int uint;
typedef unsigned long ulong;

DEVICE uint thread_x() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE uint thread_y() { return __builtin_amdgcn_workitem_id_y(); }
DEVICE uint thread_z() { return __builtin_amdgcn_workitem_id_z(); }
DEVICE uint group_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE uint group_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEVICE uint group_z() { return __builtin_amdgcn_workgroup_id_z(); }

DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

#if __AMDGCN_WAVEFRONT_SIZE == 64
#define LANES 64
#else
#define LANES 32
#endif
DEVICE uint lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)) % LANES; }
DEVICE float shuffle_xor(float v, uint mask) {
  return __builtin_bit_cast(float,
                            __builtin_amdgcn_ds_bpermute(((lane() ^ mask) * 4), __builtin_bit_cast(int, v)));
}
DEVICE float wave_sum(float v) {
  for (uint m = LANES / 2; m; m /= 2) v += shuffle_xor(v, m);
  return v;
}
DEVICE float wave_max(float v) {
  for (uint m = LANES / 2; m; m /= 2) v = __builtin_fmaxf(v, shuffle_xor(v, m));
  return v;
}
