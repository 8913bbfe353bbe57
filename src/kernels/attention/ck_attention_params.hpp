// attention by Composable Kernel: what launcher and kernels share.
#pragma once

#include <cstdint>

namespace rocm_sd {

// Strides in elements; head h owns columns [h * head_dim, (h + 1) * head_dim).
struct CkAttentionParams {
  struct Rows {
    const void* data = nullptr;
    int64_t image = 0;
    int row = 0;
  };
  Rows q, k, v;
  void* y = nullptr;  // [batch,queries,heads*head_dim]
  int heads = 0, queries = 0, keys = 0, head_dim = 0;
  float scale = 1;
};

// The instances' tiles: queries and columns of a workgroup (one of batch * heads workgroups along y), and how
// deep the scores' product steps. Where a head is deeper than one step, the kernel with a loop over them is
// taken ("deep"), and where it has more columns than a workgroup, the one of twice as many ("wide").
struct CkAttentionTile {
  int queries, columns, depth, threads;
  bool causal;  // there are deep and wide kernels for it
  constexpr int columns_of(int64_t head_dim) const { return head_dim > columns ? 2 * columns : columns; }
};
inline constexpr CkAttentionTile kCkAttentionXdl = {128, 64, 32, 256, true};
inline constexpr CkAttentionTile kCkAttentionWmma = {128, 64, 64, 256, false};

}  // namespace rocm_sd
