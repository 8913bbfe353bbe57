// One map on several ranks: each has some of its rows, over the whole width and all channels. While a
// RowScope lives, the ops on layers (layer_ops.hpp, the blocks' attention) fetch what they need of the
// others: a convolution the neighbours' rows, a group norm the moments of all rows, self attention all keys
// and values. The result is that of one rank within rounding: no value is stale, no border is padded but the
// image's. Displaced rows (Li et al., "DistriFusion", 2024) are the exception: after the first calls of a
// forward they read what the others had in the call before, so that nobody waits for what is being made.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "kernels/attention/attention.hpp"
#include "kernels/conv/conv2d.hpp"
#include "models/layers.hpp"
#include "models/window_exchange.hpp"
#include "runtime/exec.hpp"
#include "runtime/ranks.hpp"

namespace rocm_sd {

// Which rows each rank has, at every size that a model's maps have.
class RowSplit {
 public:
  // height, width: of the latents. unit: rows that a rank's begin is a multiple of: 2^n for a model that
  // halves its maps n times, so that a row of the coarsest map lies on one rank. doublings: how often maps
  // grow beyond the latents (the VAE's decoder). Throws UsageError where there are fewer units than ranks, or
  // maps so small that two sizes cannot be told apart.
  RowSplit(Ranks& ranks, int64_t height, int64_t width, int64_t unit, int64_t doublings);

  Ranks& ranks() const { return ranks_; }
  int64_t begin() const {
    return ends_[static_cast<size_t>(ranks_.rank())] - rows();
  }  // of the latents' rows
  int64_t rows() const;
  const std::vector<int64_t>& ends() const { return ends_; }  // of every rank's rows of the latents
  bool has_above() const { return ranks_.rank() > 0; }
  bool has_below() const { return ranks_.rank() + 1 < ranks_.count(); }
  // Whether every rank's part of the one map has four times as many pixels as its part of the other, of which
  // this rank has `from` and `to`.
  bool doubles(int64_t from, int64_t to) const;
  // Pixels of every rank's part of a map of which this rank has so many.
  const std::vector<int64_t>& pixels_like(int64_t own) const;

  // Displaced rows, where Ranks::exact_calls() asks for them; without effect elsewhere. All ranks make the
  // same calls. Between end_call() and begin_call() exchanges are exact.
  void begin_image() const;
  void begin_call() const;
  // In a call, before its forward runs: which of several that is. After another one it is exact, for it finds
  // nothing of its own in the call before.
  void run_forward(uint32_t which) const;
  void end_call() const { in_call_ = false; }
  int64_t calls() const { return call_; }  // of this image
  int64_t image() const { return image_; }
  bool stale() const;             // this call reads what there was in the one before
  uint32_t next_channel() const;  // of the next exchange of this call; 0 where all exchanges are exact

 private:
  Ranks& ranks_;
  mutable int64_t image_ = 0, call_ = 0;
  mutable uint32_t exchanges_ = 0;  // in this call
  mutable bool in_call_ = false;
  mutable std::optional<uint32_t> forward_;  // of the last call
  mutable bool follows_itself_ = false;      // this call runs it again
  std::vector<int64_t> ends_;
  std::vector<std::vector<int64_t>> sizes_;  // [size][rank]
};

// What becomes of the messages of a forward that pass by windows (displaced rows). kKept: they stay there for
// the next call. kStale: and this call reads those of the one before.
enum class RowMessages { kPassing, kKept, kStale };

// The ops on layers of this thread work on parts of maps while this lives. null: on whole ones.
class RowScope {
 public:
  explicit RowScope(const RowSplit* rows, RowMessages messages = RowMessages::kPassing);
  ~RowScope();
  RowScope(const RowScope&) = delete;
  RowScope& operator=(const RowScope&) = delete;

  const RowSplit* rows() const { return rows_; }
  KeptCall* call() { return call_ ? &*call_ : nullptr; }

 private:
  const RowSplit* rows_;
  std::optional<KeptCall> call_;
  RowScope* before_;
};
// What the innermost scope says; null: maps are whole.
const RowSplit* rows_at_work();
// The innermost scope's; null: messages pass.
KeptCall* kept_call();

// x [N,R,W,C] with the last row of the rank above and the first one of the rank below, where they are asked
// for and there is such a rank: [N,R + 0..2,W,C]. All ranks ask for the same.
Tensor with_neighbours(Exec& ex, const RowSplit& split, const Tensor& x, bool above, bool below);

// conv(x, args) for a square filter of 1 or 3 that pads the map's border: with the neighbours' rows in place
// of the padding, where there are any, of stride 1, 1 with upsampling, and 2 (padded above). x [N,R,W,C] ->
// this rank's rows of the result.
using ConvOfRows = std::function<Tensor(const Tensor& x, const ConvArgs& args)>;
Tensor conv_of_rows(Exec& ex, const RowSplit& split, const Tensor& x, int kernel, ConvArgs args,
                    const ConvOfRows& conv);

// own [B,N,C], a rank's pixels -> those of all ranks in their order [B,sum of N,C].
Tensor gather_pixels(Exec& ex, const RowSplit& split, const Tensor& own, Waits waits = Waits::kEager);

// Self attention of packed queries, keys and values [B,N,3C], over the keys of all ranks where a scope is
// open: -> [B,N,C].
Tensor packed_attention(Exec& ex, const Tensor& packed, const AttentionArgs& args);

// act(group_norm(x)) over the rows of all ranks: x [N,R,W,C] -> in dtype. The moments of all rows are merged
// in double (group_bands.hpp). act: kNone or kSilu.
Tensor group_norm_of_all(Exec& ex, const RowSplit& split, const Tensor& x, const Norm& norm, int64_t groups,
                         Activation act, DType dtype);

}  // namespace rocm_sd
