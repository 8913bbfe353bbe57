// Pack: neighbouring elements that one lane loads and stores with one instruction (up to 16 bytes).
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

// kCount: a power of two.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
  T x[kCount];
};

// The address must be a multiple of the pack's alignment on a GPU; the host takes any.
template <int kCount, class T>
ROCM_SD_DEVICE Pack<T, kCount> load_pack(const T* from) {
#if defined(ROCM_SD_ON_GPU)
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
#else
  Pack<T, kCount> pack;
  __builtin_memcpy(&pack, from, sizeof(pack));
  return pack;
#endif
}
template <int kCount, class T>
ROCM_SD_DEVICE void store_pack(T* to, const Pack<T, kCount>& pack) {
#if defined(ROCM_SD_ON_GPU)
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
#else
  __builtin_memcpy(to, &pack, sizeof(pack));
#endif
}

}  // namespace rocm_sd
