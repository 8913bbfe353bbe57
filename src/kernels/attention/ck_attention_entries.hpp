// The entry points of attention by Composable Kernel, for one storage type: for the ck_attention_*.hip files.
// Problem    y = softmax(scale q k^T) v of one head
// Mapping    a workgroup of 256 lanes for 128 queries and 64 of the head's columns, over 128 keys at a time
// Traffic    q once; k and v through LDS for every 128 queries, and once more for every 64 columns of a head
// Numerics   scores, softmax and sums in float, its weights in 16 bits
// Limits     no mask; head_dim a multiple of 8; an image's rows below 2 GiB
#pragma once

#if defined(__GFX9__)
#include "kernels/attention/ck_attention_xdl.hpp"
#else
#include "kernels/attention/ck_attention_wmma.hpp"
#endif

namespace rocm_sd::ck_entries {

template <class T, bool kLoop>
__device__ void attend(const CkAttentionParams& p) {
  const int image = static_cast<int>(blockIdx.y) / p.heads;
  const int head = static_cast<int>(blockIdx.y) % p.heads;
  const auto rows = [&](const CkAttentionParams::Rows& r) {
    return static_cast<const T*>(r.data) + image * r.image + static_cast<int64_t>(head) * p.head_dim;
  };
  const int64_t y = (static_cast<int64_t>(image) * p.queries * p.heads + head) * p.head_dim;
  Attention<T>::template run<kLoop>(p, rows(p.q), rows(p.k), rows(p.v), static_cast<T*>(p.y) + y);
}

}  // namespace rocm_sd::ck_entries

// T: as Composable Kernel names the type.
#define ROCM_SD_CK_ATTENTION(suffix, T)                                  \
  extern "C" __global__ void __launch_bounds__(256)                      \
      ck_attention_##suffix(const rocm_sd::CkAttentionParams p) {        \
    rocm_sd::ck_entries::attend<T, false>(p);                            \
  }                                                                      \
  extern "C" __global__ void __launch_bounds__(256)                      \
      ck_attention_##suffix##_deep(const rocm_sd::CkAttentionParams p) { \
    rocm_sd::ck_entries::attend<T, true>(p);                             \
  }
