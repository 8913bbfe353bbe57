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

// f(pack's [i], other's [i] ...) for each i; f may change the elements of what is not const.
template <class Packed, class F, class... Others>
ROCM_SD_DEVICE void for_each_element(Packed& pack, const F& f, Others&... others) {
  constexpr int kCount = static_cast<int>(sizeof(pack.x) / sizeof(pack.x[0]));
  ROCM_SD_UNROLL
  for (int i = 0; i < kCount; ++i) f(pack.x[i], others.x[i]...);
}
// of(0), of(1), ...
template <int kCount, class T, class Of>
ROCM_SD_DEVICE Pack<T, kCount> pack_of(const Of& of) {
  Pack<T, kCount> pack;
  ROCM_SD_UNROLL
  for (int i = 0; i < kCount; ++i) pack.x[i] = of(i);
  return pack;
}

// values, rounded, two at a time where the hardware does so.
template <class T, int kCount>
ROCM_SD_DEVICE void store_all(Pack<T, kCount>& to, const float (&values)[kCount]) {
  if constexpr (kCount % 2 == 0 && sizeof(T) == 2) {
    ROCM_SD_UNROLL
    for (int j = 0; j < kCount; j += 2) store_pair(to.x + j, values[j], values[j + 1]);
  } else {
    ROCM_SD_UNROLL
    for (int j = 0; j < kCount; ++j) store(to.x[j], values[j]);
  }
}

}  // namespace rocm_sd
