// What a thread of flash attention by NVIDIA's warpgroup products holds of its two queries, and what it does
// to a tile of keys and values in LDS: shared by the bodies that differ in how tiles come there
// (flash_wgmma.hpp, flash_tma.hpp).
// Numerics  as FlashAttention; the weights are summed before they are rounded. They are taken relative to
//           the maximum of the first tile for as long as a thread's part of a tile weighs at most kMax: most
//           tiles then need no maximum at all, and no sum is multiplied. kMax is what 16-bit floats hold
//           with room to spare; weights far below 1 keep their precision, because a base that lags is
//           smaller than the maximum.
// Method of the lazy base: Zadouri et al., "FlashAttention-4", 2026.
#pragma once

#include "composable_kernels/fused/flash_params.hpp"
#include "composable_kernels/hopper/wgmma_tile.hpp"
#include "composable_kernels/tile/lds_tile.hpp"

namespace rocm_sd {

// kKeysOfTile: 64, 80 or 128. kConsumerGroupCount: warpgroups of a workgroup, of 64 queries each.
template <class Storage, int kHeadDim, int kKeysOfTile, int kConsumerGroupCount>
struct FlashWgmmaRows {
  using Arch = Nvidia;
  using T = Storage;
  static constexpr int kDim = kHeadDim, kPadded = (kDim + 15) / 16 * 16, kDepths = kPadded / 16;
  static constexpr int kKeys = kKeysOfTile;
  static constexpr int kPanels = flash_panels(kDim), kPanel = kKeys * 64, kTile = kPanels * kPanel;
  static constexpr int kThreads = kConsumerGroupCount * 128, kQueries = kConsumerGroupCount * 64;
  static constexpr float kHidden = -__builtin_inff(), kMax = 32768;
  using Scores = WgmmaTile<kKeys>;
  using Weights = WgmmaOperand<T, kKeys>;
  static_assert(kDim <= 128 && kDim % 8 == 0);

  const FlashParams<T>& p;
  const FlashGroup group;
  int image, head;
  int first_key, last_key;
  WgmmaOperand<T, kPadded> q;
  WgmmaTile<kDim> o;
  RowPair base, total;

  ROCM_SD_DEVICE FlashWgmmaRows(const FlashParams<T>& params, FlashGroup at) : p(params), group(at) {
    image = group.head / p.heads;
    head = group.head % p.heads;
    first_key = group.split * p.keys_per_split;
    last_key = first_key + p.keys_per_split < p.keys ? first_key + p.keys_per_split : p.keys;
    fill(o, 0);
    fill(base, kHidden);
    fill(total, 0);
  }

  // The thread's first query, in the image; its second is 8 further.
  ROCM_SD_DEVICE int first_query() const {
    const int thread = WarpgroupRows::unknown(Arch::thread());
    return group.tile * kQueries + thread / 32 * 16 + thread % 32 / 4;
  }
  ROCM_SD_DEVICE int key_tiles() const {
    return last_key > first_key ? (last_key - first_key + kKeys - 1) / kKeys : 0;
  }
  // Where the 16-byte piece of a row lies in a tile.
  static ROCM_SD_DEVICE int place(int at, int chunk) {
    return chunk / 8 * kPanel + at * 64 + ((chunk % 8) ^ (at % 8)) * 8;
  }

  ROCM_SD_DEVICE void load_queries() {
    const T* rows = p.q.data + image * p.q.image + static_cast<int64_t>(head) * kDim;
    const int row = first_query();
    ROCM_SD_UNROLL
    for (int d = 0; d < kDepths; ++d) {
      ROCM_SD_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int at = row + i % 2 * 8, channel = d * 16 + i / 2 * 8 + Arch::lane() % 4 * 2;
        q.x[d][i] = 0;
        if (d * 16 + i / 2 * 8 < kDim)
          q.x[d][i] = *reinterpret_cast<const uint32_t*>(
              rows + (at < p.queries ? at : p.queries - 1) * p.q.row + channel);
      }
    }
  }

  ROCM_SD_DEVICE void multiply_keys(Scores& s, const T* keys) const { start_mma_ABt<kPanel>(s, q, keys); }
  ROCM_SD_DEVICE void multiply_values(const T* values, const Weights& weights) {
    start_mma_AB<kPanel>(o, weights, values);
  }

  // The first tile's scores become weights, in place.
  ROCM_SD_DEVICE void weigh_first(Scores& s) {
    RowPair factor;
    hide(s, 0);
    rebase(factor, s);
    exponentiate(s, total);
  }
  // The only tile's, of all keys.
  ROCM_SD_DEVICE void weigh_only(Scores& s) {
    RowPair factor;
    const int mine = last_key - WarpgroupRows::unknown(Arch::lane()) % 4 * 2;
    constexpr int kLast = Scores::kCount - 4;  // of the lane's, before those of the tile's last 8 keys
    const auto hide_late = [&](float& x, int, int key) {
      if (key >= mine) x = kHidden;
    };
    if (last_key <= kKeys - 8) for_elements<0, kLast>(s, hide_late);
    for_elements<kLast, Scores::kCount>(s, hide_late);
    fill(base, kHidden);
    rebase(factor, s);
    exponentiate_each(s, total);
  }
  // A later one's; `keys`: its tile, not yet given back. Whether, in any lane of the wave, the bases have
  // moved: the sums so far must then be multiplied by factor.
  ROCM_SD_DEVICE bool online_softmax(Scores& s, RowPair& factor, int tile, const T* keys) {
    RowPair sum;
    hide(s, tile);
    exponentiate(s, sum);
    const bool grown = Arch::any(sum.x[0] > kMax || sum.x[1] > kMax);
    if (grown) {
      multiply_keys_again(s, keys);
      hide(s, tile);
      rebase(factor, s);
      exponentiate(s, sum);
      for_rows([&](int h) { total.x[h] *= factor.x[h]; });
    }
    for_rows([&](int h) { total.x[h] += sum.x[h]; });
    return grown;
  }

  ROCM_SD_DEVICE void write() {
    sum_lanes(total);
    for_rows([&](int h) { write(h); });
  }

 private:
  ROCM_SD_DEVICE void hide(Scores& s, int tile) const {
    const int left = last_key - (first_key + tile * kKeys);
    if (left >= kKeys) return;
    const int mine = left - WarpgroupRows::unknown(Arch::lane()) % 4 * 2;
    for_each(s, [&](float& x, int, int key) {
      if (key >= mine) x = kHidden;
    });
  }
  // Bases move to the maximum, if that is larger.
  ROCM_SD_DEVICE void rebase(RowPair& factor, Scores& s) {
    RowPair next;
    row_max(next, s);
    for_rows([&](int h) {
      float& to = next.x[h];
      to = fmaxf(to * p.scale, base.x[h]);
      if (to == kHidden) to = 0;
      factor.x[h] = Arch::exp2(base.x[h] - to);
      base.x[h] = to;
    });
  }
  // Each is summed as it comes.
  ROCM_SD_DEVICE void exponentiate_each(Scores& s, RowPair& sum) const {
    fill(sum, 0);
    for_each(s, [&](float& x, int h, int) {
      x = Arch::exp2(x * p.scale - base.x[h]);
      sum.x[h] += x;
    });
  }
  ROCM_SD_DEVICE void exponentiate(Scores& s, RowPair& sum) const {
    for_each(s, [&](float& x, int h, int) { x = x * p.scale - base.x[h]; });
    exp2_and_sum_in_batches(s, sum);
  }
  // The scores once more, by this wave alone: rare.
  ROCM_SD_DEVICE void multiply_keys_again(Scores& s, const T* keys) const {
    using M = Atom<Nvidia, T>;
    const int lane = WarpgroupRows::unknown(Arch::lane());  // no addresses kept for this in registers
    ROCM_SD_UNROLL
    for (int j = 0; j < kKeys / 16; ++j) {
      typename M::C c{};
      ROCM_SD_UNROLL
      for (int d = 0; d < kDepths; ++d) {
        typename M::A a;
        typename M::B b;
        ROCM_SD_UNROLL
        for (int i = 0; i < 4; ++i) {
          a.r[i] = *reinterpret_cast<const uint32_t*>(
              keys + place(j * 16 + i / 2 * 8 + lane / 4, 2 * d + i % 2) + lane % 4 * 2);
          b.r[i] = q.x[d][i];
        }
        M::mma(c, a, b);
      }
      ROCM_SD_UNROLL
      for (int i = 0; i < 8; ++i) s.x[8 * j + i] = c.x[i];
    }
  }

  ROCM_SD_DEVICE void write(int h) const {
    const int query = first_query() + 8 * h, column = Arch::lane() % 4 * 2;
    if (query >= p.queries) return;
    if (p.splits > 1) {
      const int64_t at = (static_cast<int64_t>(group.split) * p.batch_heads + group.head) * p.queries + query;
      store_row(p.partial_sums + at * kDim + column, o, h);
      if (column == 0) *reinterpret_cast<float2*>(p.partial_stats + at * 2) = {base.x[h], total.x[h]};
      return;
    }
    const float share = total.x[h] == 0 ? 0.0f : Arch::reciprocal(total.x[h]);
    store_row(p.y + ((static_cast<int64_t>(image) * p.queries + query) * p.heads + head) * kDim + column, o,
              h, share);
  }
};

}  // namespace rocm_sd
