// The entry points of attention by Composable Kernel, for one storage type: for the ck_attention_*.hip files.
// Problem    y = softmax(scale q k^T) v of one head
// Mapping    a workgroup of 256 lanes for 128 queries and 64 or 128 of the head's columns, over 128 keys at a
//            time; bound so that two workgroups of 64 columns fit on a compute unit, as CK's own are
// Traffic    q once; k and v through LDS for every 128 queries, and once more for every 128 columns of a head
// Numerics   scores, softmax and sums in float, its weights in 16 bits
// Limits     no mask but the causal one of CDNA's kernels with a loop over depth; head_dim a multiple of 8; an
//            image's rows below 2 GiB
#pragma once

#if defined(__GFX9__)
#include "kernels/attention/ck_attention_xdl.hpp"
#else
#include "kernels/attention/ck_attention_wmma.hpp"
#endif

namespace rocm_sd::ck_entries {

template <class T, bool kLoop, bool kWide = false, bool kCausal = false>
__device__ void attend(const CkAttentionParams& p) {
  const int image = static_cast<int>(blockIdx.y) / p.heads;
  const int head = static_cast<int>(blockIdx.y) % p.heads;
  const auto rows = [&](const CkAttentionParams::Rows& r) {
    return static_cast<const T*>(r.data) + image * r.image + static_cast<int64_t>(head) * p.head_dim;
  };
  const int64_t y = (static_cast<int64_t>(image) * p.queries * p.heads + head) * p.head_dim;
  constexpr int kColumns = kAttentionTile.columns * (kWide ? 2 : 1);
  using Kernel = Attention<T, kColumns, kCausal>;
  Kernel::template run<kLoop>(p, rows(p.q), rows(p.k), rows(p.v), static_cast<T*>(p.y) + y);
}

}  // namespace rocm_sd::ck_entries

// groups: of those that a compute unit takes at once; twice as many columns would spill at two.
#define ROCM_SD_CK_ATTENTION_ENTRY(name, groups, ...)           \
  extern "C" __global__ void __launch_bounds__(256, groups)     \
      ck_attention_##name(const rocm_sd::CkAttentionParams p) { \
    rocm_sd::ck_entries::attend<__VA_ARGS__>(p);                \
  }
#if defined(__GFX9__)
#define ROCM_SD_CK_ATTENTION_CAUSAL(suffix, T)                              \
  ROCM_SD_CK_ATTENTION_ENTRY(suffix##_deep_causal, 2, T, true, false, true) \
  ROCM_SD_CK_ATTENTION_ENTRY(suffix##_wide_causal, 1, T, true, true, true)
#else
#define ROCM_SD_CK_ATTENTION_CAUSAL(suffix, T)
#endif

// T: as Composable Kernel names the type.
#define ROCM_SD_CK_ATTENTION(suffix, T)                       \
  ROCM_SD_CK_ATTENTION_ENTRY(suffix, 2, T, false)             \
  ROCM_SD_CK_ATTENTION_ENTRY(suffix##_deep, 2, T, true)       \
  ROCM_SD_CK_ATTENTION_ENTRY(suffix##_wide, 1, T, true, true) \
  ROCM_SD_CK_ATTENTION_CAUSAL(suffix, T)
