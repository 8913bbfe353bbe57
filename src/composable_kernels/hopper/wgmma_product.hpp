// The main loop by NVIDIA's warpgroup products: both operands are read from LDS by the matrix unit itself,
// while the threads go on to start the copies of later steps.
// Mapping   a warpgroup multiplies 64 rows by all kBlockN channels: waves_m is kBlockM / 16,
//           waves_n 1
// Traffic   tiles [rows][64] without padding, 16-byte pieces swizzled as the matrix unit expects, in kStages
//           stages by async copies kStages - 2 steps ahead; one product stays under way across the barrier
// Numerics  as fused/main_loop.hpp
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

template <class Cfg, class Weights, class Rows>
class WgmmaPipeline {
  using T = typename Cfg::T;
  using Ring = StageRing<Cfg>;

 public:
  static constexpr int kAhead = Cfg::kStages - 2;  // steps under way
  static constexpr Prefetch kPrefetch = Prefetch::kAfterMma;
  using WeightCopy = AsyncChunks<Nvidia, Cfg, Cfg::kBlockN, Weights>;
  using RowCopy = AsyncChunks<Nvidia, Cfg, Cfg::kBlockM, Rows>;

  ROCM_SD_DEVICE WgmmaPipeline(char* lds, WeightCopy& weights, RowCopy& rows, int last)
      : ring_{aligned(lds)}, weights_(weights), rows_(rows), last_(last) {}

  ROCM_SD_DEVICE void prefetch(int step) {
    if (step < last_) {
      weights_.copy(ring_.weights(ring_.free), step * Cfg::kBlockK);
      rows_.copy(ring_.rows(ring_.free), step * Cfg::kBlockK);
    }
    Nvidia::commit_copies();
    ring_.fill();
  }
  ROCM_SD_DEVICE void receive() const {
    Nvidia::wait_copies<kAhead - 1>();
    Warpgroup::publish();
    Warpgroup::wait<1>();  // the product before the last has been read: its stage is free after the barrier
    Nvidia::barrier();
  }
  // Starts the products.
  ROCM_SD_DEVICE void mma(Accumulators<Nvidia, Cfg>& acc) const {
    uint64_t from_weights = Warpgroup::tile(ring_.weights(ring_.stage));
    uint64_t from_rows = Warpgroup::tile(ring_.rows(ring_.stage) + warpgroup_at_);
    Warpgroup::begin();
    ROCM_SD_UNROLL
    for (int k = 0; k < Cfg::kBlockK; k += 16) {
      Wgmma<T, Cfg::kBlockN>::mma(acc.atoms[0], from_rows, from_weights);
      from_rows += Warpgroup::kNextDepth;
      from_weights += Warpgroup::kNextDepth;
    }
    Warpgroup::commit();
  }
  ROCM_SD_DEVICE void advance() { ring_.advance(); }
  ROCM_SD_DEVICE void finish(Accumulators<Nvidia, Cfg>& acc) const {
    Warpgroup::wait<0>();
    settle(acc.atoms[0]);
  }

 private:
  // To 1024 bytes, from which the swizzle counts.
  static ROCM_SD_DEVICE T* aligned(char* lds) {
    const auto misplaced = static_cast<uint32_t>(__cvta_generic_to_shared(lds)) % 1024;
    return reinterpret_cast<T*>(lds + (1024 - misplaced) % 1024);
  }

  Ring ring_;
  const int warpgroup_at_ = Nvidia::uniform(Nvidia::thread() / 128) * 64 * Cfg::kLd;
  WeightCopy& weights_;
  RowCopy& rows_;
  const int last_;
};

// The policy of these pipelines, as pipeline/product.hpp says.
template <class>
struct WgmmaProduct {
  template <class, class Cfg, class Weights, class Rows>
  using Product = WgmmaPipeline<Cfg, Weights, Rows>;
};

}  // namespace rocm_sd
