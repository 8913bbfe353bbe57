// The main loop by NVIDIA's warpgroup products with tiles fetched by the copy engine (sm_90): one wave of the
// workgroup does nothing but start copies, kStages steps ahead and across tiles; the others multiply.
// Mapping   as tile/group_product.hpp; a cluster of kCluster workgroups takes tiles below each other, and
//           each fetches a part of the weights' tile for all of them
// Traffic   tiles [rows][64] in the 128-byte swizzle; a stage's barriers count its bytes in (`full`) and its
//           readers out, of the whole cluster (`empty`)
// Numerics  as tile/main_loop.hpp
#pragma once

#include "composable_kernels/arch/nvidia_bulk.hpp"
#include "composable_kernels/arch/nvidia_group.hpp"
#include "composable_kernels/tile/main_loop.hpp"

namespace rocm_sd {

// kStays: workgroups go on to further tiles, fetching them while the output of the last is written.
template <class Storage, TileShape kTileShape, int kClusterSize, bool kStaysOn>
struct BulkCfg : ProductCfg<Storage, kTileShape> {
  using Base = ProductCfg<Storage, kTileShape>;
  static constexpr int kCluster = kClusterSize;
  static constexpr bool kStays = kStaysOn;
  static constexpr int kPieces = kCluster < 2 ? 2 : kCluster;  // in which the weights' tile is fetched
  static constexpr int kPieceRows = Base::kBlockN / kPieces;
  static constexpr int kStaged = bulk_staged_atoms(kTileShape, kStays);
  static constexpr int kStageBytes = bulk_stage_bytes(kTileShape);
  static constexpr int kLdsBytes = bulk_lds_bytes(kTileShape, kStays);
  static constexpr int kTailPieces = kStays ? 5 : 2;    // two workgroups share the registers
  static constexpr int kConsumers = 32 * Base::kWaves;  // threads
  static_assert(Base::kBlockK == 64 && Base::kWaveM == 16 && Base::kShape.waves_n == 1 &&
                Base::kWaves % 4 == 0 && sizeof(Storage) == 2 && Base::kBlockM <= 256 &&
                Base::kBlockN % (8 * kPieces) == 0);
};

// One workgroup's view of the stages. Every thread makes one; then the fetching wave's first lane calls
// fetch() and the consumers multiply(), for the same tiles in the same order; at the end all call leave().
template <class Cfg>
class BulkPipeline {
  using T = typename Cfg::T;
  static constexpr int kStages = Cfg::kStages;

 public:
  ROCM_SD_DEVICE explicit BulkPipeline(char* lds, int rank) : rank_(rank) {
    const auto misplaced = static_cast<uint32_t>(__cvta_generic_to_shared(lds)) % 1024;
    tiles_ = lds + (1024 - misplaced) % 1024;
    barriers_ = tiles_ + (Cfg::kLdsBytes - 1024 - 16 * kStages);
    if (Nvidia::thread() == 0) {
      for (int s = 0; s < kStages; ++s) {
        full(s).init(1);
        empty(s).init(Cfg::kWaves * Cfg::kCluster);
      }
      Bulk::publish_barriers();
    }
    Nvidia::wave_barrier();
    meet();
  }
  ROCM_SD_DEVICE void leave() const {
    Nvidia::wave_barrier();
    if constexpr (Cfg::kCluster > 1) Bulk::cluster_barrier();  // nobody may arrive in LDS that is gone
  }
  // Where consumers may stage the output.
  ROCM_SD_DEVICE char* staging() const {
    if constexpr (Cfg::kStays) return tiles_ + kStages * Cfg::kStageBytes;
    return tiles_;
  }

  // // Starts the copies of one step: this workgroup's part of the weights, piece i of whose tile begins at
  // row piece_row(i), and its rows by fetch_rows(to, barrier).
  template <class PieceRow, class FetchRows>
  ROCM_SD_DEVICE void fetch(const TensorMap& w, int k, const PieceRow& piece_row,
                            const FetchRows& fetch_rows) {
    constexpr int kPieceBytes = Cfg::kPieceRows * 128;
    empty(stage_).wait_cluster(phase_ ^ 1);
    full(stage_).expect(Cfg::kStageBytes);
    char* const at = tiles_ + stage_ * Cfg::kStageBytes;
    if constexpr (Cfg::kCluster == 1) {
      ROCM_SD_UNROLL
      for (int i = 0; i < Cfg::kPieces; ++i)
        Bulk::fetch(at + i * kPieceBytes, w, full(stage_), k, piece_row(i));
    } else {
      Bulk::fetch_all(at + rank_ * kPieceBytes, w, full(stage_), k, piece_row(rank_),
                      (uint16_t{1} << Cfg::kCluster) - 1);
    }
    fetch_rows(at + Cfg::kBlockN * 128, full(stage_));
    advance();
  }

  // Adds `steps` steps to acc.
  ROCM_SD_DEVICE void multiply(Accumulators<Nvidia, Cfg>& acc, int steps) {
    const int group_at = Cfg::kBlockN * 128 + Nvidia::uniform(Nvidia::thread() / 128) * 64 * 128;
    int last = 0;
    for (int step = 0; step < steps; ++step) {
      full(stage_).wait(phase_);
      const char* const at = tiles_ + stage_ * Cfg::kStageBytes;
      uint64_t from_weights = WaveGroup::tile(at), from_rows = WaveGroup::tile(at + group_at);
      WaveGroup::begin();
      ROCM_SD_UNROLL
      for (int k = 0; k < Cfg::kBlockK; k += 16) {
        GroupMma<T, Cfg::kBlockN>::mma(acc.c, from_rows, from_weights);
        from_rows += WaveGroup::kNextDepth;
        from_weights += WaveGroup::kNextDepth;
      }
      WaveGroup::commit();
      WaveGroup::wait<1>();
      if (step > 0) release(last);
      last = stage_;
      advance();
    }
    WaveGroup::wait<0>();
    settle(acc.c);
    if (steps > 0) release(last);
  }

 private:
  ROCM_SD_DEVICE BulkBarrier full(int stage) const { return BulkBarrier(barriers_ + 8 * stage); }
  ROCM_SD_DEVICE BulkBarrier empty(int stage) const { return BulkBarrier(barriers_ + 8 * (kStages + stage)); }
  ROCM_SD_DEVICE void meet() const {
    if constexpr (Cfg::kCluster > 1)
      Bulk::cluster_barrier();
    else
      Nvidia::barrier();
  }
  // This wave has read the stage: one lane tells each workgroup of the cluster.
  ROCM_SD_DEVICE void release(int stage) const {
    if (Nvidia::lane() < Cfg::kCluster) empty(stage).arrive_at(Nvidia::lane());
  }
  ROCM_SD_DEVICE void advance() {
    if (++stage_ == kStages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

  char *tiles_, *barriers_;
  int rank_, stage_ = 0;
  uint32_t phase_ = 0;
};

}  // namespace rocm_sd
