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
// taken.
struct CkAttentionTile {
  int queries, columns, depth, threads;
};
inline constexpr CkAttentionTile kCkAttentionXdl = {128, 64, 32, 256};
inline constexpr CkAttentionTile kCkAttentionWmma = {128, 64, 64, 256};

}  // namespace rocm_sd
