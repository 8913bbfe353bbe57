// Flash attention by NVIDIA's warpgroup products (sm_90a) with tiles fetched by TMA: no thread
// copies, and warpgroups wait for tiles only, not for each other.
// Problem   y = softmax(scale q k^T) v for each head; 16-bit in and out
// Mapping   grid (query tiles, batch * heads, splits of the keys); a warpgroup owns 64 queries: Q, P and O
//           lie in registers, K and V in LDS as rows of 128 bytes
// Traffic   q and y once, k and v once per query tile (from L2); kStages tiles of keys or values in LDS, in
//           the order of their use: K0 K1 V0 K2 V1 ...
// Numerics  FlashWgmmaRows
// Limits    no mask; scale > 0; kDim % 8 == 0, kDim <= 128; at least one key
// Method: Shah et al., "FlashAttention-3", 2024, sections 3.1 and 3.2.
#pragma once

#include "composable_kernels/arch/hopper_tma.hpp"
#include "composable_kernels/hopper/flash_wgmma_rows.hpp"

namespace rocm_sd {

// Cfg: T; kDim; kKeys, of a tile; kWarpgroups, warpgroups of a workgroup; kStages, even, at least 4;
// kPingPong: two warpgroups start their products in turn, so that one weighs while the other's are under way.
template <class Cfg>
struct FlashTma : FlashWgmmaRows<typename Cfg::T, Cfg::kDim, Cfg::kKeys, Cfg::kWarpgroups> {
  using Rows = FlashWgmmaRows<typename Cfg::T, Cfg::kDim, Cfg::kKeys, Cfg::kWarpgroups>;
  using Arch = Nvidia;
  using T = typename Cfg::T;
  using Rows::kKeys, Rows::kTile, Rows::kPanels, Rows::kPanel;
  static constexpr int kStages = Cfg::kStages, kWaves = 4 * Cfg::kWarpgroups;
  // Pairs of tiles under way ahead of their use. The rest of the ring is slack: the warpgroup whose thread
  // fetches need not wait until the others have read what they have just been given.
  static constexpr int kAhead = kStages >= 8 ? 3 : 2;
  static constexpr int kLdsBytes = flash_tma_lds_bytes(Cfg::kDim, kKeys, kStages);
  static_assert(kStages % 2 == 0 && kStages >= 4 && (!Cfg::kPingPong || Cfg::kWarpgroups == 2));

  // A place in the ring of tiles, and the parity of its round.
  struct Place {
    int stage = 0;
    uint32_t round = 0;
    ROCM_SD_DEVICE void advance() {
      if (++stage == kStages) stage = 0, round ^= 1;
    }
  };

  const TensorMap &k, &v;
  T* tiles;
  Place next, fetched;  // to be read; to be fetched, of the one thread that does

  ROCM_SD_DEVICE FlashTma(const FlashTmaParams<T>& params, char* lds, FlashGroup at)
      : Rows(params.flash, at), k(params.k), v(params.v) {
    const auto misplaced = static_cast<uint32_t>(__cvta_generic_to_shared(lds)) % 1024;
    tiles = reinterpret_cast<T*>(lds + (1024 - misplaced) % 1024);
  }

  ROCM_SD_DEVICE T* tile_at(int stage) const { return tiles + stage * kTile; }
  ROCM_SD_DEVICE TmaBarrier full(int stage) const {
    return TmaBarrier(reinterpret_cast<char*>(tiles + kStages * kTile) + stage * kFlashBarrierBytes);
  }
  ROCM_SD_DEVICE TmaBarrier empty(int stage) const {
    return TmaBarrier(reinterpret_cast<char*>(tiles + kStages * kTile) + stage * kFlashBarrierBytes + 8);
  }

  ROCM_SD_DEVICE void fetch(const TensorMap& map, int tile) {
    empty(fetched.stage).wait(fetched.round ^ 1);
    full(fetched.stage).expect(kTile * 2);
    ROCM_SD_UNROLL
    for (int i = 0; i < kPanels; ++i)
      Tma::fetch_head(tile_at(fetched.stage) + i * kPanel, map, full(fetched.stage), i * 64, this->head,
                      this->first_key + tile * kKeys, this->image);
    fetched.advance();
  }
  // Into the places of tiles that were read kStages / 2 - kAhead tiles ago.
  ROCM_SD_DEVICE void fetch_next(int tile, int count) {
    if (Arch::thread() == 0) {
      if (tile > 0 && tile + kAhead < count) fetch(k, tile + kAhead);
      if (tile + kAhead <= count && (tile > 0 || kAhead < count)) fetch(v, tile + kAhead - 1);
    }
    Arch::wave_barrier();
  }
  // The fetches before the loop: the first keys, then pairs of the next keys and these values.
  ROCM_SD_DEVICE void fetch_first(int count) {
    if (Arch::thread() != 0) return;
    fetch(k, 0);
    for (int i = 1; i < kAhead && i < count; ++i) {
      fetch(k, i);
      fetch(v, i - 1);
    }
    if (kAhead < count)
      fetch(k, kAhead);
    else
      fetch(v, count - 1);
  }

  // A tile that is there, and the barrier that says it has been read.
  struct Tile {
    const T* data;
    TmaBarrier read;
  };
  ROCM_SD_DEVICE Tile await_tile() {
    full(next.stage).wait(next.round);
    const Tile tile{tile_at(next.stage), empty(next.stage)};
    next.advance();
    return tile;
  }
  static ROCM_SD_DEVICE void release(const Tile& tile) {
    Arch::wave_barrier();
    if (Arch::lane() == 0) tile.read.arrive();
  }
  // Ping-pong: a warpgroup's products start when the other's have been started.
  static ROCM_SD_DEVICE void await_turn(int consumer) {
    if (Cfg::kPingPong) Tma::wait_for_turn(consumer);
  }
  static ROCM_SD_DEVICE void pass_turn(int consumer) {
    if (Cfg::kPingPong) Tma::let_consumer_start(1 - consumer);
  }

  ROCM_SD_DEVICE void run_keys(int count) {
    const int consumer = Cfg::kPingPong ? WarpgroupRows::consumer() : 0;
    fetch_first(count);
    this->load_queries();
    Arch::barrier();

    typename Rows::Scores s;
    typename Rows::Weights weights;
    RowPair factor;
    const Tile first = await_tile();
    this->multiply_keys(s, first.data);
    wait<0>(s);
    release(first);
    this->weigh_first(s);
    convert(weights, s);
    if (consumer == 1) pass_turn(1);
    for (int tile = 0; tile + 1 < count; ++tile) {
      if (!Cfg::kPrefetchAfterMma) fetch_next(tile, count);
      const Tile keys = await_tile();
      await_turn(consumer);
      this->multiply_keys(s, keys.data);  // S = Q K^T, of the next tile
      const Tile values = await_tile();
      this->multiply_values(values.data, weights);  // O += P V, of this one
      pass_turn(consumer);
      if (Cfg::kPrefetchAfterMma) fetch_next(tile, count);
      wait<1>(s);
      const bool grown = this->online_softmax(s, factor, tile + 1, keys.data);
      pin(s);  // or the compiler would do this after the next wait
      release(keys);
      wait<0>(this->o);
      release(values);
      if (grown) scale(this->o, factor);
      convert(weights, s);  // P
    }
    if (consumer == 0) await_turn(0);
    this->multiply_values(await_tile().data, weights);
    wait<0>(this->o);
  }

  ROCM_SD_DEVICE void run() {
    if (Arch::thread() == 0) {
      Tma::prefetch(k);
      Tma::prefetch(v);
      for (int i = 0; i < kStages; ++i) {
        full(i).init(1);
        empty(i).init(kWaves);
      }
      Tma::publish_barriers();
    }
    Arch::pdl_wait();
    Arch::pdl_launch_next();
    if (const int count = this->key_tiles()) run_keys(count);
    this->write();
  }
};

}  // namespace rocm_sd
