// The main loop by NVIDIA's warpgroup products: both operands are read from LDS by the matrix unit itself,
// while the threads go on to start the copies of later steps.
// Mapping   a warpgroup multiplies 64 rows by all kBlockN channels: waves_m is kBlockM / 16,
//           waves_n 1
// Traffic   tiles [rows][64] without padding, 16-byte pieces swizzled as the matrix unit expects, in kStages
//           stages by async copies kStages - 2 steps ahead; one product stays under way across the barrier
// Numerics  as tile/wave_tile.hpp
#pragma once

#include "composable_kernels/arch/hopper_wgmma.hpp"
#include "composable_kernels/pipeline/product_async_copies.hpp"

namespace rocm_sd {

template <class Storage, TileShape kTileShape>
struct WgmmaCfg : ProductCfg<Storage, kTileShape> {
  using Base = ProductCfg<Storage, kTileShape>;
  static constexpr int kLd = Base::kBlockK;
  static constexpr int kLdsBytes = wgmma_lds_bytes(kTileShape);
  static_assert(Base::kBlockK == 64 && Base::kWaveM == 16 && Base::kShape.waves_n == 1 &&
                Base::kWaves % 4 == 0 && Base::kStages >= 3 && sizeof(Storage) == 2);

  static ROCM_SD_DEVICE constexpr int element(int row, int column) {
    return row * kLd + ((column / 8) ^ (row % 8)) * 8;
  }
};

template <class Cfg>
struct WgmmaProduct {
  using T = typename Cfg::T;

  // As WaveProduct; lds: Cfg::kLdsBytes.
  template <class Weights, class Rows>
  static ROCM_SD_DEVICE void multiply(Accumulators<Nvidia, Cfg>& acc, char* lds, const Weights& weights,
                                      const Rows& rows, int first, int last) {
    constexpr int kStages = Cfg::kStages, kAhead = kStages - 2;
    constexpr int kRowsAt = Cfg::kBlockN * Cfg::kLd, kStageSize = (Cfg::kBlockN + Cfg::kBlockM) * Cfg::kLd;
    const auto misplaced = static_cast<uint32_t>(__cvta_generic_to_shared(lds)) % 1024;
    T* const tiles = reinterpret_cast<T*>(lds + (1024 - misplaced) % 1024);
    const int group_at = Nvidia::uniform(Nvidia::thread() / 128) * 64 * Cfg::kLd;
    AsyncChunks<Nvidia, Cfg, Cfg::kBlockN, Weights> weight_copy(weights);
    AsyncChunks<Nvidia, Cfg, Cfg::kBlockM, Rows> row_copy(rows);
    const auto issue = [&](int step, int stage) {
      if (step < last) {
        T* const at = tiles + stage * kStageSize;
        weight_copy.copy(at, step * Cfg::kBlockK);
        row_copy.copy(at + kRowsAt, step * Cfg::kBlockK);
      }
      Nvidia::commit_copies();
    };
    ROCM_SD_UNROLL
    for (int s = 0; s < kAhead; ++s) issue(first + s, s);
    int stage = 0, free_stage = kAhead;
    for (int step = first; step < last; ++step) {
      Nvidia::wait_copies<kAhead - 1>();
      Warpgroup::publish();
      Warpgroup::wait<1>();  // the product before the last has been read: its stage is free after the barrier
      Nvidia::barrier();
      const T* const at = tiles + stage * kStageSize;
      uint64_t from_weights = Warpgroup::tile(at), from_rows = Warpgroup::tile(at + kRowsAt + group_at);
      Warpgroup::begin();
      ROCM_SD_UNROLL
      for (int k = 0; k < Cfg::kBlockK; k += 16) {
        Wgmma<T, Cfg::kBlockN>::mma(acc.c, from_rows, from_weights);
        from_rows += Warpgroup::kNextDepth;
        from_weights += Warpgroup::kNextDepth;
      }
      Warpgroup::commit();
      issue(step + kAhead, free_stage);
      stage = stage + 1 == kStages ? 0 : stage + 1;
      free_stage = free_stage + 1 == kStages ? 0 : free_stage + 1;
    }
    Warpgroup::wait<0>();
    settle(acc.c);
  }
};

}  // namespace rocm_sd
