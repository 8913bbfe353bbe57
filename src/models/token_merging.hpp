// Token merging before self attention (Bolya and Hoffman, "Token Merging for Fast Stable Diffusion", 2023;
// arXiv 2303.17604): of the pixels of a map those that are most alike become one, the attention runs on what
// is left, and its result is added to all that were merged. As the released `tomesd` with use_rand=False:
// destinations are the upper left pixels of squares of 2 x 2, similarities are cosines of what the
// transformer block reads, rows are merged by their mean, for self attention alone.
#pragma once

#include "kernels/token_merge/token_merge.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

struct TokenMerge {
  double ratio = 0;                           // of a map's tokens that are merged into others, 0..0.75
  int64_t least_height = 0, least_width = 0;  // of the maps that are merged
  double* saved_operations = nullptr;         // what a forward did not compute is added; null: not counted

  // How many of a map's tokens go: at most its sources.
  int64_t merged(const TokenGrid& grid) const;
};

// x [B,H*W,C], f32, bf16 or f16 -> the place of each of its tokens among the H*W - merged that are left,
// [B,H*W] f32 (token_places). dtype: of the products of its rows: f32 on the host, else the layers' own.
Tensor match_tokens(Exec& ex, const Tensor& x, const TokenGrid& grid, int64_t merged, DType dtype);

}  // namespace rocm_sd
