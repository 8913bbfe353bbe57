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

#include "composable_kernels/arch/hopper_wgmma_rows.hpp"
#include "composable_kernels/fused/flash_params.hpp"
#include "composable_kernels/tile/lds_tile.hpp"

namespace rocm_sd {

// kKeysOfTile: 64, 80 or 128. kConsumerGroupCount: warpgroups of a workgroup, of 64 queries each.
template <class Storage, int kHeadDim, int kKeysOfTile, int kConsumerGroupCount>
struct FlashWgmmaRows {
  using Arch = Nvidia;
  using T = Storage;
  static constexpr int kDim = kHeadDim, kPadded = (kDim + 15) / 16 * 16, kDepths = kPadded / 16;
  static constexpr int kKeys = kKeysOfTile, kScores = kKeys / 2;
  static constexpr int kPanels = (kPadded + 63) / 64, kPanel = kKeys * 64, kTile = kPanels * kPanel;
  static constexpr int kThreads = kConsumerGroupCount * 128, kQueries = kConsumerGroupCount * 64;
  static constexpr float kHidden = -__builtin_inff(), kMax = 32768;
  static_assert(kDim <= 128 && kDim % 8 == 0);

  const FlashParams<T>& p;
  const FlashGroup group;
  int image, head;
  int first_key, last_key;
  uint32_t q[kDepths][4];
  float o[kDim / 2];
  float base[2], total[2];

  ROCM_SD_DEVICE FlashWgmmaRows(const FlashParams<T>& params, FlashGroup at) : p(params), group(at) {
    image = group.head / p.heads;
    head = group.head % p.heads;
    first_key = group.split * p.keys_per_split;
    last_key = first_key + p.keys_per_split < p.keys ? first_key + p.keys_per_split : p.keys;
    ROCM_SD_UNROLL
    for (int i = 0; i < kDim / 2; ++i) o[i] = 0;
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) base[h] = kHidden, total[h] = 0;
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
        q[d][i] = 0;
        if (d * 16 + i / 2 * 8 < kDim)
          q[d][i] = *reinterpret_cast<const uint32_t*>(
              rows + (at < p.queries ? at : p.queries - 1) * p.q.row + channel);
      }
    }
  }

  ROCM_SD_DEVICE void multiply_keys(const T* keys, float (&s)[kScores]) const {
    Warpgroup::begin();
    const uint64_t from = Warpgroup::tile(keys);
    ROCM_SD_UNROLL
    for (int d = 0; d < kDepths; ++d)
      WgmmaRows<T, kKeys, false>::mma(
          s, q[d], from + d / 4 * (kPanel * 2 >> 4) + d % 4 * Warpgroup::kNextDepth, d > 0);
    Warpgroup::commit();
  }
  ROCM_SD_DEVICE void multiply_values(const T* values, const uint32_t (&weights)[kKeys / 16][4]) {
    Warpgroup::begin();
    const uint64_t from = WarpgroupRows::tile_along_columns(values, kPanel * 2);
    ROCM_SD_UNROLL
    for (int j = 0; j < kKeys / 16; ++j)
      WgmmaRows<T, kDim, true>::mma(o, weights[j], from + j * WarpgroupRows::kNextRows, 1);
    Warpgroup::commit();
  }

  // The first tile's scores become weights, in place.
  ROCM_SD_DEVICE void weigh_first(float (&s)[kScores]) {
    float factor[2], sum[2];
    hide(0, s);
    rebase(s, factor);
    exponentiate(s, sum);
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) total[h] = sum[h];
  }
  // The only tile's, of all keys.
  ROCM_SD_DEVICE void weigh_only(float (&s)[kScores]) {
    float factor[2];
    const int mine = last_key - WarpgroupRows::unknown(Arch::lane()) % 4 * 2;
    constexpr int kLast = kScores - 4;  // of the lane's, before those of the tile's last 8 keys
    if (last_key <= kKeys - 8) {
      ROCM_SD_UNROLL
      for (int i = 0; i < kLast; ++i)
        if (i / 4 * 8 + i % 2 >= mine) s[i] = kHidden;
    }
    ROCM_SD_UNROLL
    for (int i = kLast; i < kScores; ++i)
      if (i / 4 * 8 + i % 2 >= mine) s[i] = kHidden;
    base[0] = base[1] = kHidden;
    rebase(s, factor);
    exponentiate_each(s, total);
  }
  // A later one's; `keys`: its tile, not yet given back. Whether, in any lane of the wave, the bases have
  // moved: the sums so far must then be multiplied by factor.
  ROCM_SD_DEVICE bool online_softmax(int tile, const T* keys, float (&s)[kScores], float (&factor)[2]) {
    float sum[2];
    hide(tile, s);
    exponentiate(s, sum);
    const bool grown = Arch::any(sum[0] > kMax || sum[1] > kMax);
    if (grown) {
      multiply_keys_again(keys, s);
      hide(tile, s);
      rebase(s, factor);
      exponentiate(s, sum);
      ROCM_SD_UNROLL
      for (int h = 0; h < 2; ++h) total[h] *= factor[h];
    }
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) total[h] += sum[h];
    return grown;
  }
  ROCM_SD_DEVICE void scale_sums(const float (&factor)[2]) {
    ROCM_SD_UNROLL
    for (int i = 0; i < kDim / 2; ++i) o[i] *= factor[i / 2 % 2];
  }
  static ROCM_SD_DEVICE void round(const float (&s)[kScores], uint32_t (&weights)[kKeys / 16][4]) {
    ROCM_SD_UNROLL
    for (int i = 0; i < kScores; i += 2)
      weights[i / 8][i / 4 % 2 * 2 + i / 2 % 2] = Atom<Nvidia, T>::pack(s[i], s[i + 1]);
  }

  ROCM_SD_DEVICE void write() {
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) {
      total[h] += Arch::shuffle_xor(total[h], 1);
      total[h] += Arch::shuffle_xor(total[h], 2);
      write(h);
    }
  }

 private:
  ROCM_SD_DEVICE void hide(int tile, float (&s)[kScores]) const {
    const int left = last_key - (first_key + tile * kKeys);
    if (left >= kKeys) return;
    const int mine = left - WarpgroupRows::unknown(Arch::lane()) % 4 * 2;
    ROCM_SD_UNROLL
    for (int i = 0; i < kScores; ++i)
      if (i / 4 * 8 + i % 2 >= mine) s[i] = kHidden;
  }
  // Bases move to the maximum, if that is larger.
  ROCM_SD_DEVICE void rebase(const float (&s)[kScores], float (&factor)[2]) {
    float next[2] = {kHidden, kHidden};
    ROCM_SD_UNROLL
    for (int i = 0; i < kScores; ++i) next[i / 2 % 2] = fmaxf(next[i / 2 % 2], s[i]);
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) {
      next[h] = fmaxf(next[h], Arch::shuffle_xor(next[h], 1));
      next[h] = fmaxf(next[h], Arch::shuffle_xor(next[h], 2)) * p.scale;
      next[h] = fmaxf(next[h], base[h]);
      if (next[h] == kHidden) next[h] = 0;
      factor[h] = Arch::exp2(base[h] - next[h]);
      base[h] = next[h];
    }
  }
  // Each is summed as it comes.
  ROCM_SD_DEVICE void exponentiate_each(float (&s)[kScores], float (&sum)[2]) const {
    sum[0] = sum[1] = 0;
    ROCM_SD_UNROLL
    for (int i = 0; i < kScores; ++i) {
      s[i] = Arch::exp2(s[i] * p.scale - base[i / 2 % 2]);
      sum[i / 2 % 2] += s[i];
    }
  }
  // The same, but a batch of exponentials follows another and is summed while the next is under way: sums in
  // between would wait for one exponential each, and those behind them with them. Takes a few registers more.
  ROCM_SD_DEVICE void exponentiate(float (&s)[kScores], float (&sum)[2]) const {
    constexpr int kBatch = 8;
    static_assert(kScores % kBatch == 0);
    ROCM_SD_UNROLL
    for (int i = 0; i < kScores; ++i) s[i] = s[i] * p.scale - base[i / 2 % 2];
    float sums[2][2] = {};  // two to a query, of which additions take turns
    ROCM_SD_UNROLL
    for (int first = 0; first <= kScores; first += kBatch) {
      ROCM_SD_UNROLL
      for (int i = first; i < first + kBatch && i < kScores; ++i) WarpgroupRows::exp2_in_order(s[i]);
      ROCM_SD_UNROLL
      for (int i = first - kBatch; i >= 0 && i < first; ++i) {
        WarpgroupRows::pin_one(s[i]);
        sums[i / 2 % 2][i % 2] += s[i];
      }
    }
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) sum[h] = sums[h][0] + sums[h][1];
  }
  // The scores once more, by this wave alone: rare.
  ROCM_SD_DEVICE void multiply_keys_again(const T* keys, float (&s)[kScores]) const {
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
          b.r[i] = q[d][i];
        }
        M::mma(c, a, b);
      }
      ROCM_SD_UNROLL
      for (int i = 0; i < 8; ++i) s[8 * j + i] = c.x[i];
    }
  }

  ROCM_SD_DEVICE void write(int h) const {
    const int query = first_query() + 8 * h, column = Arch::lane() % 4 * 2;
    if (query >= p.queries) return;
    if (p.splits > 1) {
      const int64_t at = (static_cast<int64_t>(group.split) * p.batch_heads + group.head) * p.queries + query;
      ROCM_SD_UNROLL
      for (int i = 0; i < kDim / 8; ++i)
        *reinterpret_cast<float2*>(p.partial_sums + at * kDim + i * 8 + column) = {o[4 * i + 2 * h],
                                                                                   o[4 * i + 2 * h + 1]};
      if (column == 0) *reinterpret_cast<float2*>(p.partial_stats + at * 2) = {base[h], total[h]};
      return;
    }
    const float share = total[h] == 0 ? 0.0f : Arch::reciprocal(total[h]);
    T* y = p.y + ((static_cast<int64_t>(image) * p.queries + query) * p.heads + head) * kDim + column;
    ROCM_SD_UNROLL
    for (int i = 0; i < kDim / 8; ++i)
      *reinterpret_cast<uint32_t*>(y + i * 8) =
          Atom<Nvidia, T>::pack(o[4 * i + 2 * h] * share, o[4 * i + 2 * h + 1] * share);
  }
};

}  // namespace rocm_sd
