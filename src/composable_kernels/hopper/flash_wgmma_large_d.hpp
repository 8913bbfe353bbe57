// Flash attention for head_dim 512 by NVIDIA's warpgroup products (sm_90a).
// Problem   y = softmax(scale q k^T) v for each head; 16-bit in and out
// Mapping   grid (query tiles, batch * heads, splits of the keys). Two warpgroups share 64 queries: each
//           scores half of a tile of 128 keys, they agree on the maxima, put P into LDS, and each multiplies
//           all of P by its 256 channels of V
// Traffic   q and y once, k and v once per query tile (from L2), through 8 stages of 16 KB that hold in turn
//           [128 keys][64] of K and [16 keys][512] of V; Q stays in LDS
// Numerics  as FlashAttention; the weights are summed before they are rounded
// Limits    no mask; scale > 0
#pragma once

#include "composable_kernels/fused/flash_params.hpp"
#include "composable_kernels/hopper/wgmma_tile.hpp"

namespace rocm_sd {

template <class T>
struct FlashWgmmaLargeD {
  using Arch = Nvidia;
  static constexpr int kDim = 512, kQueries = 64, kKeys = 128, kThreads = 256;
  using Lds = FlashWgmmaLargeDLds;
  static constexpr int kPanel = Lds::kPanel;  // elements of [64 rows][64]
  static constexpr int kChunkKeys = 16, kKeySteps = kDim / 64, kSteps = kKeySteps + kKeys / kChunkKeys;
  static constexpr int kStages = Lds::kStages, kStageElements = Lds::kStageElements, kAhead = kStages - 2;
  static_assert(kSteps % kStages == 0 && kChunkKeys * kDim == kStageElements && kKeys * 64 == kStageElements);
  static constexpr int kWeights = Lds::kWeights, kRing = Lds::kRing, kMaxima = Lds::kMaxima;
  static constexpr int kLdsBytes = Lds::kBytes;
  static constexpr float kHidden = -__builtin_inff(), kSlack = 8;  // as OnlineSoftmax
  using Scores = WgmmaTile<64>;                                    // of a warpgroup's keys

  const FlashParams<T>& p;
  T* lds;
  const FlashGroup group;
  int image, head, half,
      row;  // half: of the warpgroup; row: the thread's first query in the tile, and 8 further
  int first_key, last_key;
  const T *k, *v;
  WgmmaTile<256> o;     // of this warpgroup's channels
  RowPair base, total;  // total: of the keys of this warpgroup

  ROCM_SD_DEVICE FlashWgmmaLargeD(const FlashParams<T>& params, char* memory, FlashGroup at)
      : p(params), group(at) {
    const auto misplaced = static_cast<uint32_t>(__cvta_generic_to_shared(memory)) % 1024;
    lds = reinterpret_cast<T*>(memory + (1024 - misplaced) % 1024);
    image = group.head / p.heads;
    head = group.head % p.heads;
    half = Arch::thread() / 128;
    row = Arch::thread() / 32 % 4 * 16 + Arch::lane() / 4;
    first_key = group.split * p.keys_per_split;
    last_key = first_key + p.keys_per_split < p.keys ? first_key + p.keys_per_split : p.keys;
    k = p.k.data + image * p.k.image + static_cast<int64_t>(head) * kDim;
    v = p.v.data + image * p.v.image + static_cast<int64_t>(head) * kDim;
  }

  ROCM_SD_DEVICE T* stage(int step) const { return lds + kRing + step % kStages * kStageElements; }
  ROCM_SD_DEVICE float* maxima() const { return reinterpret_cast<float*>(lds + kMaxima); }
  // Where a 16-byte piece of a row of 64 elements lies.
  static ROCM_SD_DEVICE int place(int at, int piece) { return at * 64 + (piece ^ (at % 8)) * 8; }

  ROCM_SD_DEVICE void load_queries() const {
    const T* rows = p.q.data + image * p.q.image + static_cast<int64_t>(head) * kDim;
    for (int i = Arch::thread(); i < kQueries * 64; i += kThreads) {
      const int at = i / 64, piece = i % 64, query = group.tile * kQueries + at;
      Arch::copy_async(lds + piece / 8 * kPanel + place(at, piece % 8),
                       rows + (query < p.queries ? query : p.queries - 1) * p.q.row + piece * 8, true);
    }
  }
  // Starts the copies of a step of the tile at `first`.
  ROCM_SD_DEVICE void fetch(int first, int step) const {
    if (first < last_key) {
      T* const to = stage(step);
      ROCM_SD_UNROLL
      for (int n = 0; n < kStageElements / 8 / kThreads; ++n) {
        const int i = Arch::thread() + n * kThreads;
        if (step < kKeySteps) {
          const int at = i / 8, key = first + at;
          Arch::copy_async(to + place(at, i % 8),
                           k + (key < last_key ? key : last_key - 1) * p.k.row + step * 64 + i % 8 * 8, true);
        } else {
          const int at = i / 64, piece = i % 64, key = first + (step - kKeySteps) * kChunkKeys + at;
          Arch::copy_async(to + piece / 8 * (kChunkKeys * 64) + place(at, piece % 8),
                           v + (key < last_key ? key : last_key - 1) * p.v.row + piece * 8, true);
        }
      }
    }
    Arch::commit_copies();
  }

  ROCM_SD_DEVICE void multiply_keys(Scores& s, int step) const {
    uint64_t queries = Warpgroup::tile(lds + step * kPanel),
             keys = Warpgroup::tile(stage(step) + half * kPanel);
    Warpgroup::begin();
    ROCM_SD_UNROLL
    for (int d = 0; d < 4; ++d)
      GroupKeysMma<T>::mma(s.x, queries + d * Warpgroup::kNextDepth, keys + d * Warpgroup::kNextDepth,
                           step + d > 0);
    Warpgroup::commit();
  }
  ROCM_SD_DEVICE void multiply_values(int step) {
    const int chunk = step - kKeySteps;  // of 16 keys
    const uint64_t weights =
        Warpgroup::tile(lds + kWeights + chunk / 4 * kPanel) + chunk % 4 * Warpgroup::kNextDepth;
    Warpgroup::begin();
    GroupAlongMma<T>::mma(
        o.x, weights,
        WarpgroupRows::tile_along_columns(stage(step) + half * 4 * (kChunkKeys * 64), kChunkKeys * 64 * 2));
    Warpgroup::commit();
  }

  // One value per query, for the other warpgroup.
  ROCM_SD_DEVICE void publish(const RowPair& value) const {
    for_rows([&](int h) {
      if (Arch::lane() % 4 == 0) maxima()[half * kQueries + row + 8 * h] = value.x[h];
    });
  }
  ROCM_SD_DEVICE float published(int by, int h) const { return maxima()[by * kQueries + row + 8 * h]; }

  // Scores become weights in LDS. No product is under way; all threads come here.
  ROCM_SD_DEVICE void online_softmax(Scores& s, int first) {
    const int left = last_key - (first + half * 64);
    if (left < 64)
      for_each(s, [&](float& x, int, int key) {
        if (key + Arch::lane() % 4 * 2 >= left) x = kHidden;
      });
    RowPair next, factor;
    row_max(next, s);
    for_rows([&](int h) { next.x[h] *= p.scale; });
    publish(next);
    Arch::barrier();
    bool grown = false;
    for_rows([&](int h) {
      next.x[h] = fmaxf(next.x[h], published(1 - half, h));
      grown |= next.x[h] > base.x[h] + kSlack;
    });
    if (Arch::any(grown)) {  // alike in the waves of either half that hold these queries
      for_rows([&](int h) {
        const float moved = fmaxf(base.x[h], next.x[h]);
        factor.x[h] = base.x[h] == kHidden ? 0.0f : Arch::exp2(base.x[h] - moved);
        base.x[h] = moved;
        total.x[h] *= factor.x[h];
      });
      scale(o, factor);
    }
    T* const weights = lds + kWeights + half * kPanel;
    for_pairs(s, [&](float& low, float& high, int h, int column) {
      const float from = base.x[h] == kHidden ? 0.0f : base.x[h];
      const float x = Arch::exp2(low * p.scale - from), y = Arch::exp2(high * p.scale - from);
      total.x[h] += x + y;
      *reinterpret_cast<uint32_t*>(weights + place(row + 8 * h, column / 8) + Arch::lane() % 4 * 2) =
          Atom<Nvidia, T>::pack(x, y);
    });
    Warpgroup::publish();
    Arch::barrier();
  }

  ROCM_SD_DEVICE void run_tile(int first) {
    Scores s;
    ROCM_SD_UNROLL
    for (int n = 0; n < kSteps; ++n) {
      Arch::template wait_copies<kAhead - 1>();
      Warpgroup::publish();
      Arch::barrier();
      fetch(n + kAhead < kSteps ? first : first + kKeys, (n + kAhead) % kSteps);
      if (n == kKeySteps) online_softmax(s, first);
      if (n < kKeySteps) {
        multiply_keys(s, n);
        wait<0>(s);
      } else {
        multiply_values(n);
        wait<0>(o);
      }
    }
  }

  ROCM_SD_DEVICE void run() {
    fill(o, 0);
    fill(base, kHidden);
    fill(total, 0);
    if (first_key < last_key) {
      load_queries();  // with the first group of copies
      for (int n = 0; n < kAhead; ++n) fetch(first_key, n);
      for (int first = first_key; first < last_key; first += kKeys) run_tile(first);
    }
    Arch::barrier();
    sum_lanes(total);
    publish(total);
    Arch::barrier();
    for_rows([&](int h) { write(h, published(0, h) + published(1, h)); });
  }

  ROCM_SD_DEVICE void write(int h, float sum) const {
    const int query = group.tile * kQueries + row + 8 * h, column = half * 256 + Arch::lane() % 4 * 2;
    if (query >= p.queries) return;
    if (p.splits > 1) {
      const int64_t at = (static_cast<int64_t>(group.split) * p.batch_heads + group.head) * p.queries + query;
      store_row(p.partial_sums + at * kDim + column, o, h);
      if (column == 0) *reinterpret_cast<float2*>(p.partial_stats + at * 2) = {base.x[h], sum};
      return;
    }
    const float share = sum == 0 ? 0.0f : Arch::reciprocal(sum);
    store_row(p.y + ((static_cast<int64_t>(image) * p.queries + query) * p.heads + head) * kDim + column, o,
              h, share);
  }
};

}  // namespace rocm_sd
