// The ops of token merging (Bolya and Hoffman, "Token Merging for Fast Stable Diffusion", 2023, section 4;
// the released `tomesd` with use_rand=False): the upper left pixel of each 2 x 2 of a map is a destination,
// the others are sources, and the sources that are most similar to a destination are merged into it. Numbers
// of tokens are f32 in memory, so images have fewer than 2^24. Nothing is read by the host: the sizes of all
// results follow from the shapes.
#pragma once

#include "composable_kernels/fused/token_grid.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// x [B,H*W,C] f32, bf16 or f16 -> its rows divided by their lengths, in dtype, the destinations before the
// sources (TokenGrid::sorted). A row of zeros stays one. dtype: x's, or for an x of f32 any of the three.
// Throws ShapeError for other shapes, UsageError for other types.
Tensor unit_tokens(Exec& ex, const Tensor& x, const TokenGrid& grid, DType dtype);

// a [M,K], b [N,K] of one type, both made by launches of the same forward -> a b^T [M,N], sums in float: in
// their type, or in f32 where that is bf16. On the host f32 alone. Throws ShapeError otherwise.
Tensor product_of_rows(Exec& ex, const Tensor& a, const Tensor& b);

// x [rows,cols], f32, bf16 or f16, cols from 1 to 2^24 -> [rows,2] f32: each row's greatest element and its
// column, of equal ones the first; NaNs are passed over. Throws ShapeError, UsageError.
Tensor row_argmax(Exec& ex, const Tensor& x);

// matches [B,S,2] f32: how similar each source is to its destination, and that one's number -> places [B,H*W]
// f32: where each token's row is after merging. Destinations come first, in their order; the `merged` sources
// that are most similar share their destination's place; the others follow, the most similar first. Of equal
// ones the first source comes first. Throws ShapeError unless 0 <= merged <= S.
Tensor token_places(Exec& ex, const Tensor& matches, const TokenGrid& grid, int64_t merged);

// x [B,N,C], f32, bf16 or f16, places [B,N] f32 -> [B,groups,C] in x's type: the mean of the rows with each
// place, zeros where there is none. Throws ShapeError, UsageError.
Tensor merge_tokens(Exec& ex, const Tensor& x, const Tensor& places, int64_t groups);

// residual [B,N,C] plus, for each token, the row of x [B,M,C] at its place, in the residual's type: x has
// that type, or one of 16 bits where it is f32. places [B,N] f32, each from 0 to M - 1. Throws ShapeError,
// UsageError.
Tensor unmerge_tokens(Exec& ex, const Tensor& x, const Tensor& places, const Tensor& residual);

}  // namespace rocm_sd
