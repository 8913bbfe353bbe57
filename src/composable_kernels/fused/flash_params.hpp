// The arguments of the flash attention kernels, shared by host and device, and the sizes that both derive
// from a configuration.
#pragma once

#include "composable_kernels/tile/flash_lds.hpp"
#include "composable_kernels/tile/group_order.hpp"

namespace rocm_sd {

template <class T>
struct FlashParams {
  // Row i of image b begins at data + b * image + i * row, a multiple of 16 bytes; head h owns elements
  // [h * kDim, (h + 1) * kDim).
  struct Rows {
    const T* data;
    int64_t image, row;
  };
  Rows q, k, v;
  T* y;                     // [batch, queries, heads * kDim], contiguous
  float* partial_sums;      // [splits, batch * heads * queries, kDim] where splits > 1
  float* partial_stats;     // [splits, batch * heads * queries, 2]: maximum (base 2) and total
  const float* mask;        // or null
  int64_t mask_strides[4];  // of image, head, query, key
  int32_t heads, batch_heads, queries, keys;
  int32_t splits, keys_per_split;  // keys_per_split: a multiple of the key tile
  float scale;                     // of the scores, times log2(e)
  int32_t causal;
  GroupOrder order;  // of query tiles, heads and splits: a chiplet gets the tiles of few heads
};

// For TMA: keys and values as HeadBoxes.
template <class T>
struct FlashTmaParams {
  TensorMap k, v;
  FlashParams<T> flash;
};

// For few keys (flash_single_tile_kv.hpp): tiles of 64 queries, in the order of heads.
template <class T>
struct FlashSingleTileKvParams {
  FlashParams<T> flash;
  int32_t tiles, head_tiles;  // of all heads; of one
  int32_t run_tiles;          // of a workgroup: at most head_tiles + 1
  int32_t pdl_wait_keys;      // k or v may have been written by a kernel that is still at work
};

// A workgroup's place: query tile, head of an image, split.
struct FlashGroup {
  int tile, head, split;
};

// The product of a query and a key as a score: scaled, masked, in binary logarithms.
template <class T>
ROCM_SD_DEVICE float flash_score(const FlashParams<T>& p, float product, int image, int head, int query,
                                 int key, int last_key) {
  constexpr float kLog2e = 1.44269504088896f, kHidden = -__builtin_inff();
  if (key >= last_key || (p.causal && key > query)) return kHidden;
  float score = product * p.scale;
  if (p.mask && query < p.queries)
    score += kLog2e * p.mask[image * p.mask_strides[0] + head * p.mask_strides[1] +
                             query * p.mask_strides[2] + key * p.mask_strides[3]];
  return score;
}

// The merge of partial results: one row is one query of one head.
template <class T>
struct FlashMergeParams {
  const float* sums;   // [splits, rows, dim]
  const float* stats;  // [splits, rows, 2]
  T* y;                // [batch, queries, heads * dim]
  int32_t heads, queries, rows, dim, splits;
};

}  // namespace rocm_sd
