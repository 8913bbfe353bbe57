// Flash attention by NVIDIA's warpgroup products (sm_90a): the matrix unit reads keys and values from LDS
// itself and multiplies this tile's values while the threads weigh the next tile's scores.
// Problem   y = softmax(scale q k^T) v for each head; 16-bit in and out
// Mapping   grid (query tiles, batch * heads, splits of the keys); a warpgroup owns 64 queries: Q, P and O
//           lie in registers, K and V in LDS as rows of 128 bytes, copied by all threads
// Traffic   q and y once, k and v once per query tile (from L2); two tiles of either in LDS
// Numerics  FlashWgmmaRows
// Limits    no mask; scale > 0; kDim % 8 == 0, kDim <= 128
// Method: Shah et al., "FlashAttention-3", 2024, section 3.2: products and softmax of neighbouring tiles
// overlap.
#pragma once

#include "composable_kernels/hopper/flash_wgmma_rows.hpp"

namespace rocm_sd {

// Cfg: T; kDim; kWarpgroups, warpgroups of a workgroup.
template <class Cfg>
struct FlashWgmmaProduct : FlashWgmmaRows<typename Cfg::T, Cfg::kDim, kFlashWgmmaKeys, Cfg::kWarpgroups> {
  using Rows = FlashWgmmaRows<typename Cfg::T, Cfg::kDim, kFlashWgmmaKeys, Cfg::kWarpgroups>;
  using Arch = Nvidia;
  using T = typename Cfg::T;
  using Rows::kDim, Rows::kPadded, Rows::kKeys, Rows::kTile, Rows::kThreads;
  static constexpr int kStages = kFlashWgmmaStages;
  static constexpr int kLdsBytes = flash_wgmma_lds_bytes(kDim);

  T* tiles;

  ROCM_SD_DEVICE FlashWgmmaProduct(const FlashParams<T>& params, char* lds, FlashGroup at)
      : Rows(params, at) {
    const auto misplaced = static_cast<uint32_t>(__cvta_generic_to_shared(lds)) % 1024;
    tiles = reinterpret_cast<T*>(lds + (1024 - misplaced) % 1024);
  }

  ROCM_SD_DEVICE T* key_stage(int tile) const { return tiles + tile % kStages * kTile; }
  ROCM_SD_DEVICE T* value_stage(int tile) const { return tiles + (kStages + tile % kStages) * kTile; }

  ROCM_SD_DEVICE void issue(const typename FlashParams<T>::Rows& rows, int tile, T* stage) const {
    constexpr int kChunks = kDim / 8, kTotal = kKeys * kChunks;
    const int first = this->first_key + tile * kKeys, last = this->last_key;
    if (first >= last) return;
    const int valid = last - first < kKeys ? last - first : kKeys;
    const T* from = rows.data + this->image * rows.image + static_cast<int64_t>(this->head) * kDim;
    const int thread = WarpgroupRows::unknown(Arch::thread());  // no addresses kept from tile to tile
    ROCM_SD_UNROLL
    for (int n = 0; n < (kTotal + kThreads - 1) / kThreads; ++n) {
      const int i = thread + n * kThreads;
      const int at = i / kChunks, chunk = i % kChunks;
      T* const to = stage + Rows::place(at, chunk);
      const T* const source = from + (first + (at < valid ? at : valid - 1)) * rows.row + chunk * 8;
      if ((n + 1) * kThreads <= kTotal)
        Arch::copy_async(to, source, true);
      else
        Arch::copy_async_if(i < kTotal, to, source);
    }
  }
  // Keys of one tile, values of the one before.
  ROCM_SD_DEVICE void fetch(int tile) const {
    issue(this->p.k, tile, key_stage(tile));
    if (tile > 0) issue(this->p.v, tile - 1, value_stage(tile - 1));
    Arch::commit_copies();
  }
  static ROCM_SD_DEVICE void await_tiles() {
    Arch::template wait_copies<0>();
    Warpgroup::publish();
    Arch::barrier();
  }

  // The matrix unit reads keys up to kPadded channels: those that no copy writes are zero.
  ROCM_SD_DEVICE void zero_spare() const {
    constexpr int kSpare = (kPadded - kDim) / 8;
    if constexpr (kSpare > 0)
      for (int i = Arch::thread(); i < kStages * kKeys * kSpare; i += kThreads) {
        const int at = i / kSpare % kKeys, chunk = kDim / 8 + i % kSpare;
        *reinterpret_cast<Chunk16*>(key_stage(i / kSpare / kKeys) + Rows::place(at, chunk)) = Chunk16{};
      }
  }

  ROCM_SD_DEVICE void run_keys(int count) {
    typename Rows::Scores s;
    typename Rows::Weights weights;
    RowPair factor;
    zero_spare();
    fetch(0);
    this->load_queries();
    await_tiles();
    fetch(1);
    this->multiply_keys(s, key_stage(0));
    wait<0>(s);
    this->weigh_first(s);
    convert(weights, s);
    for (int tile = 0; tile + 1 < count; ++tile) {
      await_tiles();
      fetch(tile + 2);
      this->multiply_keys(s, key_stage(tile + 1));        // S = Q K^T, of the next tile
      this->multiply_values(value_stage(tile), weights);  // O += P V, of this one
      wait<1>(s);
      const bool grown = this->online_softmax(s, factor, tile + 1, key_stage(tile + 1));
      pin(s);  // or the compiler would do this after the next wait
      wait<0>(this->o);
      if (grown) scale(this->o, factor);
      convert(weights, s);  // P
    }
    await_tiles();
    this->multiply_values(value_stage(count - 1), weights);
    wait<0>(this->o);
  }

  ROCM_SD_DEVICE void run() {
    if (const int count = this->key_tiles()) run_keys(count);
    this->write();
  }
};

}  // namespace rocm_sd
