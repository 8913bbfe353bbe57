// Flash attention by NVIDIA's warpgroup products (sm_90a): the matrix unit reads keys and values from LDS
// itself and multiplies this tile's values while the threads weigh the next tile's scores.
// Problem   y = softmax(scale q k^T) v for each head; 16-bit in and out
// Mapping   grid (query tiles, batch * heads, splits of the keys); a warpgroup owns 64 queries: Q, P and O
//           lie in registers, K and V in LDS as rows of 128 bytes
// Traffic   q and y once, k and v once per query tile (from L2); two tiles of either in LDS
// Numerics  as FlashAttention; the weights are summed before they are rounded
// Limits    no mask; scale > 0; kDim % 8 == 0, kDim <= 128
// Method: Shah et al., "FlashAttention-3", 2024, section 3.2: products and softmax of neighbouring tiles
// overlap.
#pragma once

#include "composable_kernels/arch/nvidia_group_rows.hpp"
#include "composable_kernels/fused/flash_params.hpp"
#include "composable_kernels/fused/flash_staging.hpp"

namespace rocm_sd {

// Cfg: T; kDim; kGroups, warpgroups of a workgroup.
template <class Cfg>
struct FlashGroupProduct {
  using Arch = Nvidia;
  using T = typename Cfg::T;
  static constexpr int kDim = Cfg::kDim, kPadded = (kDim + 15) / 16 * 16, kDepths = kPadded / 16;
  static constexpr int kKeys = 64, kPanels = (kPadded + 63) / 64, kPanel = kKeys * 64,
                       kTile = kPanels * kPanel;
  static constexpr int kThreads = Cfg::kGroups * 128, kQueries = Cfg::kGroups * 64;
  static constexpr int kSlots = 2;
  static constexpr int kLdsBytes = 2 * kSlots * kTile * 2 + 1024;  // tiles begin at multiples of 1024
  static constexpr float kHidden = -__builtin_inff(), kSlack = 8;  // as FlashSoftmax
  static_assert(kDim <= 128);

  const FlashParams<T>& p;
  T* tiles;
  const FlashGroup group;
  int image, head, row;  // row: the thread's first query, in the image; its second is 8 further
  int first_key, last_key;
  const T *k, *v;
  uint32_t q[kDepths][4];
  float o[kDim / 2];
  float base[2], total[2];

  ROCM_SD_DEVICE FlashGroupProduct(const FlashParams<T>& params, char* lds, FlashGroup at)
      : p(params), group(at) {
    const auto misplaced = static_cast<uint32_t>(__cvta_generic_to_shared(lds)) % 1024;
    tiles = reinterpret_cast<T*>(lds + (1024 - misplaced) % 1024);
    image = group.head / p.heads;
    head = group.head % p.heads;
    row = group.tile * kQueries + Arch::thread() / 32 * 16 + Arch::lane() / 4;
    first_key = group.split * p.keys_per_split;
    last_key = first_key + p.keys_per_split < p.keys ? first_key + p.keys_per_split : p.keys;
    k = p.k.data + image * p.k.image + static_cast<int64_t>(head) * kDim;
    v = p.v.data + image * p.v.image + static_cast<int64_t>(head) * kDim;
  }

  ROCM_SD_DEVICE T* key_slot(int tile) const { return tiles + tile % kSlots * kTile; }
  ROCM_SD_DEVICE T* value_slot(int tile) const { return tiles + (kSlots + tile % kSlots) * kTile; }
  // Where the 16-byte piece of a row lies in a tile.
  static ROCM_SD_DEVICE int place(int at, int chunk) {
    return chunk / 8 * kPanel + at * 64 + ((chunk % 8) ^ (at % 8)) * 8;
  }

  ROCM_SD_DEVICE void issue(const T* from, int64_t stride, int tile, T* slot) const {
    constexpr int kChunks = kDim / 8, kTotal = kKeys * kChunks;
    const int first = first_key + tile * kKeys;
    if (first >= last_key) return;
    const int valid = last_key - first < kKeys ? last_key - first : kKeys;
    ROCM_SD_UNROLL
    for (int n = 0; n < (kTotal + kThreads - 1) / kThreads; ++n) {
      const int i = flash_item<kTotal, kThreads>(Arch::thread() + n * kThreads);
      const int at = i / kChunks, chunk = i % kChunks;
      Arch::copy_async(slot + place(at, chunk),
                       from + (first + (at < valid ? at : valid - 1)) * stride + chunk * 8, true);
    }
  }
  // Keys of one tile, values of the one before.
  ROCM_SD_DEVICE void fetch(int tile) const {
    issue(k, p.k.row, tile, key_slot(tile));
    if (tile > 0) issue(v, p.v.row, tile - 1, value_slot(tile - 1));
    Arch::commit_copies();
  }
  ROCM_SD_DEVICE static void await_tiles() {
    Arch::template wait_copies<0>();
    WaveGroup::publish();
    Arch::barrier();
  }

  ROCM_SD_DEVICE void load_queries() {
    const T* rows = p.q.data + image * p.q.image + static_cast<int64_t>(head) * kDim;
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
  // The matrix unit reads keys up to kPadded channels: those that no copy writes are zero.
  ROCM_SD_DEVICE void zero_spare() const {
    constexpr int kSpare = (kPadded - kDim) / 8;
    if constexpr (kSpare > 0)
      for (int i = Arch::thread(); i < kSlots * kKeys * kSpare; i += kThreads) {
        const int at = i / kSpare % kKeys, chunk = kDim / 8 + i % kSpare;
        *reinterpret_cast<FlashChunk*>(key_slot(i / kSpare / kKeys) + place(at, chunk)) = FlashChunk{};
      }
  }

  ROCM_SD_DEVICE void multiply_keys(int tile, float (&s)[32]) const {
    WaveGroup::begin();
    const uint64_t from = WaveGroup::tile(key_slot(tile));
    ROCM_SD_UNROLL
    for (int d = 0; d < kDepths; ++d)
      GroupRowsMma<T, kKeys, false>::mma(
          s, q[d], from + d / 4 * (kPanel * 2 >> 4) + d % 4 * WaveGroup::kNextDepth, d > 0);
    WaveGroup::commit();
  }
  ROCM_SD_DEVICE void multiply_values(int tile, const uint32_t (&weights)[4][4]) {
    WaveGroup::begin();
    const uint64_t from = WaveGroupRows::tile_along_columns(value_slot(tile), kPanel * 2);
    ROCM_SD_UNROLL
    for (int j = 0; j < kKeys / 16; ++j)
      GroupRowsMma<T, kDim, true>::mma(o, weights[j], from + j * WaveGroupRows::kNextRows, 1);
    WaveGroup::commit();
  }

  // Scores become weights, in place; the bases move where a maximum has outgrown them, and factor says what
  // the sums so far are then multiplied by. Whether any has, in any lane of the wave.
  ROCM_SD_DEVICE bool weigh(int tile, float (&s)[32], float (&factor)[2]) {
    const int left = last_key - (first_key + tile * kKeys);
    if (left < kKeys) {
      ROCM_SD_UNROLL
      for (int i = 0; i < 32; ++i)
        if (i / 4 * 8 + Arch::lane() % 4 * 2 + i % 2 >= left) s[i] = kHidden;
    }
    float next[2] = {kHidden, kHidden};
    ROCM_SD_UNROLL
    for (int i = 0; i < 32; ++i) next[i / 2 % 2] = fmaxf(next[i / 2 % 2], s[i]);
    bool grown = false;
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) {
      next[h] = fmaxf(next[h], Arch::shuffle_xor(next[h], 1));
      next[h] = fmaxf(next[h], Arch::shuffle_xor(next[h], 2)) * p.scale;
      grown |= next[h] > base[h] + kSlack;
    }
    grown = Arch::any(grown);
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float moved = grown ? fmaxf(base[h], next[h]) : base[h];
      factor[h] = base[h] == kHidden ? 0.0f : Arch::exp2(base[h] - moved);
      base[h] = moved;
      total[h] *= factor[h];
    }
    float from[2];
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) from[h] = base[h] == kHidden ? 0.0f : base[h];
    ROCM_SD_UNROLL
    for (int i = 0; i < 32; ++i) {
      s[i] = Arch::exp2(s[i] * p.scale - from[i / 2 % 2]);
      total[i / 2 % 2] += s[i];
    }
    return grown;
  }
  static ROCM_SD_DEVICE void round(const float (&s)[32], uint32_t (&weights)[4][4]) {
    ROCM_SD_UNROLL
    for (int i = 0; i < 32; i += 2)
      weights[i / 8][i / 4 % 2 * 2 + i / 2 % 2] = Atom<Nvidia, T>::pack(s[i], s[i + 1]);
  }

  ROCM_SD_DEVICE void run_keys(int count) {
    float s[32], factor[2];
    uint32_t weights[4][4];
    zero_spare();
    fetch(0);
    load_queries();
    await_tiles();
    fetch(1);
    multiply_keys(0, s);
    WaveGroup::wait<0>();
    WaveGroupRows::pin(s);
    weigh(0, s, factor);
    round(s, weights);
    for (int tile = 0; tile + 1 < count; ++tile) {
      await_tiles();
      fetch(tile + 2);
      multiply_keys(tile + 1, s);
      multiply_values(tile, weights);
      WaveGroup::wait<1>();
      WaveGroupRows::pin(s);
      const bool grown = weigh(tile + 1, s, factor);
      WaveGroup::wait<0>();
      WaveGroupRows::pin(o);
      if (grown) {
        ROCM_SD_UNROLL
        for (int i = 0; i < kDim / 2; ++i) o[i] *= factor[i / 2 % 2];
      }
      round(s, weights);
    }
    await_tiles();
    multiply_values(count - 1, weights);
    WaveGroup::wait<0>();
    WaveGroupRows::pin(o);
  }

  ROCM_SD_DEVICE void run() {
    ROCM_SD_UNROLL
    for (int i = 0; i < kDim / 2; ++i) o[i] = 0;
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) base[h] = kHidden, total[h] = 0;
    if (last_key > first_key) run_keys((last_key - first_key + kKeys - 1) / kKeys);
    ROCM_SD_UNROLL
    for (int h = 0; h < 2; ++h) {
      total[h] += Arch::shuffle_xor(total[h], 1);
      total[h] += Arch::shuffle_xor(total[h], 2);
      write(h);
    }
  }

  ROCM_SD_DEVICE void write(int h) const {
    const int query = row + 8 * h, column = Arch::lane() % 4 * 2;
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
