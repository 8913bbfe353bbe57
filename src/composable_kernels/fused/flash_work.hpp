// What the bodies of flash attention share: a workgroup's part of the problem as views of global memory, and
// its results on their way out.
#pragma once

#include "composable_kernels/fused/flash_params.hpp"
#include "composable_kernels/tile/register_tile.hpp"

namespace rocm_sd {

// kQueries: of a workgroup; keys [first_key, last_key).
template <class T, int kDim, int kQueries>
struct FlashWork {
  using View = GlobalView<const T>;
  const FlashParams<T>& p;
  const FlashGroup group;
  int image, head, first_query, first_key, last_key;

  ROCM_SD_DEVICE FlashWork(const FlashParams<T>& params, FlashGroup at) : p(params), group(at) {
    image = group.head / p.heads;
    head = group.head % p.heads;
    first_query = group.tile * kQueries;
    first_key = group.split * p.keys_per_split;
    last_key = first_key + p.keys_per_split < p.keys ? first_key + p.keys_per_split : p.keys;
  }
  // Keys behind the workgroup's last query are hidden from all of its queries.
  ROCM_SD_DEVICE void leave_out_the_future() {
    if (p.causal && first_query + kQueries < last_key) last_key = first_query + kQueries;
  }

  ROCM_SD_DEVICE View queries() const {  // from first_query on
    const T* const data =
        p.q.data + image * p.q.image + first_query * p.q.row + static_cast<int64_t>(head) * kDim;
    return {data, p.q.row, p.queries - first_query};
  }
  ROCM_SD_DEVICE View keys() const { return rows_of(p.k); }
  ROCM_SD_DEVICE View values() const { return rows_of(p.v); }
  ROCM_SD_DEVICE GlobalView<T> output() const {
    T* const data = p.y + ((static_cast<int64_t>(image) * p.queries + first_query) * p.heads + head) * kDim;
    return {data, static_cast<int64_t>(p.heads) * kDim, p.queries - first_query};
  }

  // A positive scale keeps the order of scores: where no mask is added to them, it can wait for the
  // exponential, whose multiply-add does it for nothing.
  ROCM_SD_DEVICE bool scales_late() const { return !p.mask && p.scale > 0; }
  // All queries from `query` on see the keys before this one, and nothing is left to do to their scores.
  ROCM_SD_DEVICE int finished_keys(int query) const {
    if (!scales_late()) return first_key;
    return p.causal && query + 1 < last_key ? query + 1 : last_key;
  }

  // Scores of keys (rows, from `key` on) and queries (columns, from `query` on) become binary logarithms:
  // scaled, with the mask.
  template <class M, int kRows, int kCols>
  ROCM_SD_DEVICE void mask_scores(RegTile<M, kRows, kCols>& s, int key, int query) const {
    constexpr float kLog2e = 1.44269504088896f;
    for_each(s, [&](float& x, int, int) { x *= p.scale; });
    if (!p.mask) return;
    // Where there is no key or query, the last one's is loaded: a branch would have every load waited for
    // alone.
    const float* const mask = p.mask + image * p.mask_strides[0] + head * p.mask_strides[1];
    for_each(s, [&](float& x, int row, int column) {
      const int at = query + column < p.queries ? query + column : p.queries - 1;
      const int from = key + row < last_key ? key + row : last_key - 1;
      x += kLog2e * mask[at * p.mask_strides[2] + from * p.mask_strides[3]];
    });
  }
  // Hides keys that a query does not see. A lane's rows differ from its first one by constants, which a
  // comparison takes without an addition.
  template <class M, int kRows, int kCols>
  ROCM_SD_DEVICE void hide_scores(RegTile<M, kRows, kCols>& s, int key, int query) const {
    const int own = M::row(0), last = last_key - key - own;
    for_each(s, [&](float& x, int row, int column) {
      const int diagonal = query + column + 1 - key - own;
      const int seen = p.causal && diagonal < last ? diagonal : last;
      if (row - own >= seen) x = -__builtin_inff();
    });
  }

  // Of a split: sums [channels from `channel` on][queries from `query` on], and their softmax.
  template <class M, int kRows, int kCols>
  ROCM_SD_DEVICE void store_partial(RegTile<M, kRows, kCols>& sums, int channel, int query,
                                    const ColVec<M, kCols>& base, const ColVec<M, kCols>& total) const {
    const int64_t rows = (static_cast<int64_t>(group.split) * p.batch_heads + group.head) * p.queries;
    float* const to = p.partial_sums + rows * kDim;
    float* const stats = p.partial_stats + rows * 2;
    for_each(
        sums,
        [&](float x, int row, int column, float from, float sum) {
          const int at = query + column, d = channel + row;
          if (at >= p.queries) return;
          if (kDim % 16 == 0 || d < kDim) to[static_cast<int64_t>(at) * kDim + d] = x;
          if (d != 0) return;
          stats[at * 2] = from;
          stats[at * 2 + 1] = sum;
        },
        base, total);
  }

 private:
  ROCM_SD_DEVICE View rows_of(const typename FlashParams<T>::Rows& rows) const {
    return {rows.data + image * rows.image + static_cast<int64_t>(head) * kDim, rows.row, last_key};
  }
};

}  // namespace rocm_sd
