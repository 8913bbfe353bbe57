// One layer on several ranks (Shoeybi et al., "Megatron-LM", 2019, section 3): of an attention each rank has
// some heads (the rows of query, key and value that make them, the columns of the projection that reads
// them), of a feed-forward some of the inner channels. What the last matrix gives is a part of a sum over
// all ranks, to which the first rank adds bias and residual.
#pragma once

#include "models/cut.hpp"
#include "models/layers.hpp"
#include "runtime/exec.hpp"
#include "runtime/ranks.hpp"

namespace rocm_sd {

// Which rank's share of the layers is loaded, of how many.
struct TensorShare {
  int rank = 0, count = 1;
  bool all() const { return count == 1; }
  bool leads() const { return rank == 0; }
  friend bool operator==(const TensorShare&, const TensorShare&) = default;
};

// This rank's of so many equal pieces: no two ranks differ by more than one. A rank beyond the pieces
// has none.
CutRange share_of(int64_t pieces, const TensorShare& share);
// Inner channels of a feed-forward layer, a multiple of 8 where there are that many.
CutRange share_of_channels(int64_t channels, const TensorShare& share);
// Ranks that have any.
int ranks_with(int64_t pieces, const TensorShare& share);
int ranks_with_channels(int64_t channels, const TensorShare& share);

// layer [out,in] -> the columns that read the share's channels; the bias stays with the first rank.
void keep_columns(Linear& layer, const CutRange& channels, const TensorShare& share);

// own: this rank's part of a sum, contiguous; empty on a rank without any -> the sum over the first `parts`
// ranks, which all of them have, to the same bits: parts are added in the order of the ranks, rounded to
// dtype after each.
Tensor sum_of_ranks(Exec& ex, Ranks& ranks, const Tensor& own, int parts, const Shape& shape, DType dtype);

}  // namespace rocm_sd
