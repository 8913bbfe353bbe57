// The main loop by NVIDIA's warpgroup products with tiles fetched by the copy engine (sm_90): one thread of
// the workgroup does nothing but start copies, kStages steps ahead and across tiles; the others multiply.
// Mapping   two groups of four waves multiply 64 rows each by all kBlockN channels; the workgroups of a
//           cluster take tiles below each other, for which one of them in turn fetches a step's weights, and
//           parts of k, which they sum through each other's LDS
// Traffic   tiles [rows][64] in the 128-byte swizzle; a stage's barriers count its bytes in (`full`) and its
//           readers out, of all workgroups that share weights (`empty`)
// Numerics  as tile/main_loop.hpp; parts of k are summed from the owner's on, then in their order
#pragma once

#include "composable_kernels/arch/nvidia_bulk.hpp"
#include "composable_kernels/arch/nvidia_group.hpp"
#include "composable_kernels/tile/main_loop.hpp"

namespace rocm_sd {

// kGroups: workgroups that a multiprocessor holds. With two, one multiplies while the other begins or ends,
// be it of this kernel or of the next.
template <class Storage, int kColumns, int kStageCount, int kGroups>
struct BulkCfg : ProductCfg<Storage, bulk_shape(kColumns, kStageCount)> {
  using Base = ProductCfg<Storage, bulk_shape(kColumns, kStageCount)>;
  static constexpr int kStageBytes = bulk_stage_bytes(Base::kShape);
  static constexpr int kLdsBytes = bulk_lds_bytes(Base::kShape);
  static constexpr int kConsumers = 32 * Base::kWaves;  // threads; a group of four waves more fetches
  // Alone on its multiprocessor, a workgroup's threads begin with 65536 / 384 registers, in steps of 8: 168.
  static constexpr bool kMovesRegisters = kGroups == 1;
  static constexpr int kFetchRegisters = 40, kMultiplyRegisters = 232;
  static_assert(bulk_threads(kGroups) > kConsumers && kColumns % 32 == 0 && sizeof(Storage) == 2);
};

// How the workgroups of a cluster divide their work: `sharers` tiles below each other, each in `parts` of k.
struct BulkCluster {
  int sharers, parts;
  int tile, part;  // this workgroup's

  ROCM_SD_DEVICE BulkCluster(int group, int of_sharers, int of_parts) : sharers(of_sharers), parts(of_parts) {
    const int rank = group % size();
    part = rank / sharers;
    tile = rank - part * sharers;
  }
  ROCM_SD_DEVICE int size() const { return sharers * parts; }
  ROCM_SD_DEVICE int first_sharer() const { return part * sharers; }  // its rank
};

// One workgroup's view of the stages. Every thread makes one; then one thread of the last group of waves
// calls fetch_weights() and fetch_rows(), at the end drain(), and the consumers multiply(), for the same
// steps in the same order.
template <class Cfg>
class BulkPipeline {
  using T = typename Cfg::T;
  using Sums = Accumulators<Nvidia, Cfg>;
  static constexpr int kStages = Cfg::kStages;
  static constexpr int kPairs = Cfg::kAtomsN / 2;  // of atoms: 32 channels

 public:
  ROCM_SD_DEVICE BulkPipeline(char* lds, const BulkCluster& cluster) : cluster_(cluster) {
    const auto misplaced = static_cast<uint32_t>(__cvta_generic_to_shared(lds)) % 1024;
    tiles_ = lds + (1024 - misplaced) % 1024;
    barriers_ = tiles_ + kStages * Cfg::kStageBytes;
    if (Nvidia::thread() == 0) {
      for (int s = 0; s < kStages; ++s) {
        full(s).init(1);
        empty(s).init(Cfg::kWaves * cluster.sharers);
      }
      if (cluster.parts > 1) {
        const int end = (cluster.part + 1) * owned_pairs(),
                  pairs = (end < kPairs ? end : kPairs) - end + owned_pairs();
        sums().init(1);
        sums().expect((cluster.parts - 1) * (pairs > 0 ? pairs : 0) * Cfg::kWaves * 2048);
      }
      Bulk::publish_barriers();
    }
    Nvidia::wave_barrier();
    if (cluster_.size() > 1)
      Bulk::cluster_barrier();
    else
      Nvidia::barrier();
  }
  // After the last fetch: waits until all stages are free, so that nobody arrives in LDS that is gone.
  ROCM_SD_DEVICE void drain() {
    for (int s = 0; s < kStages; ++s) {
      empty(stage_).wait(phase_ ^ 1);
      advance();
    }
  }

  // Starts the copies of a step's weights: the tile is `pieces` pieces of the map's box, piece i from block
  // of rows block(i) on. Then come its rows, by fetch_rows(to, barrier).
  template <class Block>
  ROCM_SD_DEVICE void fetch_weights(const TensorMap& w, int k, int pieces, const Block& block) {
    empty(stage_).wait(phase_ ^ 1);
    full(stage_).expect(Cfg::kStageBytes);
    if (turn_ == cluster_.tile) {
      const int piece_bytes = Cfg::kBlockN / pieces * 128;
      for (int i = 0; i < pieces; ++i) {
        char* const to = tiles_ + stage_ * Cfg::kStageBytes + i * piece_bytes;
        if (cluster_.sharers > 1)
          Bulk::fetch_dealt_to(
              static_cast<uint16_t>(((1 << cluster_.sharers) - 1) << cluster_.first_sharer()), to, w,
              full(stage_), k, block(i));
        else
          Bulk::fetch_dealt(to, w, full(stage_), k, block(i));
      }
    }
    turn_ = turn_ + 1 == cluster_.sharers ? 0 : turn_ + 1;
    advance();
  }
  // Of step `step` since the beginning.
  template <class FetchRows>
  ROCM_SD_DEVICE void fetch_rows(const FetchRows& fetch) {
    fetch(tiles_ + rows_stage_ * Cfg::kStageBytes + Cfg::kBlockN * 128, full(rows_stage_));
    rows_stage_ = rows_stage_ + 1 == kStages ? 0 : rows_stage_ + 1;
  }

  // Adds `steps` steps, at least one, to acc. The first stands before the loop: in it, nothing but products
  // may define the sums, or they would wait for each other.
  ROCM_SD_DEVICE void multiply(Sums& acc, int steps) {
    settle(acc.c);
    start_step(acc);
    int last = stage_;
    advance();
    for (int step = 1; step < steps; ++step) {
      start_step(acc);
      WaveGroup::wait<1>();
      release(last);
      last = stage_;
      advance();
    }
    WaveGroup::wait<0>();
    settle(acc.c);
    release(last);
  }

  // Pairs of atoms that each part of k owns in the end.
  ROCM_SD_DEVICE int owned_pairs() const { return (kPairs + cluster_.parts - 1) / cluster_.parts; }
  ROCM_SD_DEVICE bool owns(int pair) const { return pair / owned_pairs() == cluster_.part; }

  // After the last step: every workgroup of the tile gets the whole sums of the pairs that it owns.
  // Consumers only; the fetching group calls stand_by() meanwhile.
  ROCM_SD_DEVICE void sum_parts(Sums& acc) {
    const int owned = owned_pairs();
    Bulk::cluster_barrier();  // all tiles have been read
    ROCM_SD_UNROLL
    for (int pair = 0; pair < kPairs; ++pair) {
      const int owner = pair / owned;
      if (owner == cluster_.part) continue;
      float* const to =
          part_of(cluster_.part < owner ? cluster_.part : cluster_.part - 1, pair - owner * owned);
      ROCM_SD_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float* x = acc.c[2 * pair + i / 2][0].x + i % 2 * 4;
        Bulk::store_at(owner * cluster_.sharers + cluster_.tile, to + 128 * i, sums(), x[0], x[1], x[2],
                       x[3]);
      }
    }
    sums().wait(0);
    ROCM_SD_UNROLL
    for (int pair = 0; pair < kPairs; ++pair) {
      if (pair / owned != cluster_.part) continue;
      for (int other = 0; other + 1 < cluster_.parts; ++other) {
        const float* const from = part_of(other, pair - cluster_.part * owned);
        ROCM_SD_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float4 four = *reinterpret_cast<const float4*>(from + 128 * i);
          float* x = acc.c[2 * pair + i / 2][0].x + i % 2 * 4;
          x[0] += four.x;
          x[1] += four.y;
          x[2] += four.z;
          x[3] += four.w;
        }
      }
    }
  }
  ROCM_SD_DEVICE void stand_by() const {
    Nvidia::wave_barrier();
    Bulk::cluster_barrier();
  }

 private:
  ROCM_SD_DEVICE BulkBarrier full(int stage) const { return BulkBarrier(barriers_ + 8 * stage); }
  ROCM_SD_DEVICE BulkBarrier empty(int stage) const { return BulkBarrier(barriers_ + 8 * (kStages + stage)); }
  // Starts the products of the stage, when it is there.
  ROCM_SD_DEVICE void start_step(Sums& acc) const {
    full(stage_).wait(phase_);
    const char* const at = tiles_ + stage_ * Cfg::kStageBytes;
    const int rows_at = Cfg::kBlockN * 128 + Nvidia::uniform(Nvidia::thread() / 128) * 64 * 128;
    uint64_t from_weights = WaveGroup::tile(at), from_rows = WaveGroup::tile(at + rows_at);
    WaveGroup::begin();
    ROCM_SD_UNROLL
    for (int k = 0; k < Cfg::kBlockK; k += 16) {
      GroupMma<T, Cfg::kBlockN>::mma(acc.c, from_rows, from_weights);
      from_rows += WaveGroup::kNextDepth;
      from_weights += WaveGroup::kNextDepth;
    }
    WaveGroup::commit();
  }
  // Counts the sums that come from other parts of k.
  ROCM_SD_DEVICE BulkBarrier sums() const { return BulkBarrier(barriers_ + 16 * kStages); }
  // Where the sums that another part of k made for an owned pair lie, this lane's: 4 floats, and again after
  // each 128.
  ROCM_SD_DEVICE float* part_of(int other, int owned_pair) const {
    const int at = (other * owned_pairs() + owned_pair) * Cfg::kWaves + Nvidia::thread() / 32;
    return reinterpret_cast<float*>(tiles_) + at * 512 + Nvidia::lane() * 4;
  }
  // This wave has read the stage: one lane tells each workgroup that shares its weights.
  ROCM_SD_DEVICE void release(int stage) const {
    if (Nvidia::lane() < cluster_.sharers) empty(stage).arrive_at(cluster_.first_sharer() + Nvidia::lane());
  }
  ROCM_SD_DEVICE void advance() {
    if (++stage_ == kStages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

  const BulkCluster& cluster_;
  char *tiles_, *barriers_;
  int stage_ = 0, rows_stage_ = 0, turn_ = 0;
  uint32_t phase_ = 0;
};

}  // namespace rocm_sd
