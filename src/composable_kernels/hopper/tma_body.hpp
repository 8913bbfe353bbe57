// Products on Hopper with tiles fetched by TMA: the part that GEMM and convolution share.
// Problem   output(sum over k of rows[m, k] weights[n, k]); what rows and output are is the Work's matter
// Mapping   clusters of workgroups take tiles (of rows below each other), or parts of k of them, in turn; a
//           group of waves fetches, two multiply
// Traffic   hopper/tma_pipeline.hpp, hopper/tma_output.hpp; weights of the first tile are fetched while the
//           kernel before is still at work
// Numerics  hopper/tma_pipeline.hpp
// Limits    16-bit or 8-bit operands whose maps TMA takes; columns in whole blocks of 32
#pragma once

#include <utility>

#include "composable_kernels/fused/gemm.hpp"
#include "composable_kernels/hopper/tma_output.hpp"

namespace rocm_sd {

// Steps of 64 columns of a matrix, from `column` on.
struct TmaMatrixRows {
  const TensorMap& map;
  int row, column;
  ROCM_SD_DEVICE void fetch(char* to, TmaBarrier full) {
    Tma::fetch(to, map, full, column, row);
    column += 64;
  }
};

// tile_place() with as few divisions as it takes.
ROCM_SD_DEVICE TilePlace tma_place(int index, int tiles_m, int tiles_n) {
  constexpr int kBand = 8;
  const int band = index < kBand * tiles_n ? 0 : index / (kBand * tiles_n), first = band * kBand;
  const int height = tiles_m - first < kBand ? tiles_m - first : kBand;
  const int within = index - first * tiles_n, n = fast_quotient(within, height);
  return {first + within - n * height, n};
}

// Work: what to compute, with
//   rows(), columns()   of the product; kGated: columns of values and of their gates
//   steps()             of k
//   layers()            products of the same extents that differ in weights (phases), beside each other
//   prefetch_maps()     asks for the maps ahead of their use
//   weights()           their map; weight_row(layer, column): the row of it that a column has
//   product_steps(), term_weights()   where there may be a low-rank term: the steps before its own, and the
//     map of its weights
//   pdl_wait_weights()     whether the kernel before may still be writing them
//   pdl_wait_late()     likewise: whether of all that is read the kernel before wrote the term's rows alone,
//     or nothing. It began when those before it were complete, and let this one begin after that
//     (fetch_rows())
//   bias()              of all columns, or null
//   rows_of(layer, first row, step)   of the steps from there on: fetch(to, barrier) starts the copy of the
//     next one's, with halos of those of all taps
//   halo(), tap(step)   with halos: what they are, and which of their taps a step is
//   row(layer, row)     the row of y that a row of the product is, or -1
//   output(rows, first channel)   what becomes of the sums of a lane's two rows (hopper/tma_output.hpp): its
//     begin() fills them and returns an Operands, to which its midway() adds (if kHolds) and which its
//     finish() gets
template <class Cfg, class Work>
class TmaBody {
  static constexpr int kConsumerGroups = Cfg::kPingPong ? 2 : 1, kParts = Cfg::kParts;
  using Sums = Accumulators<Nvidia, Cfg>;
  using Output = decltype(std::declval<const Work&>().output(0, 0, 0));
  using Operands = typename Output::Operands;
  struct Tile {
    int layer, first_row, first_column;
  };

 public:
  static constexpr bool kMaySplit = !Cfg::kPingPong && !Work::kGated;

  ROCM_SD_DEVICE TmaBody(const Work& what, const TmaCluster& of, int split_steps, int workgroup,
                         int workgroups, char* lds)
      : work_(what),
        cluster_(of),
        tiles_m_(fast_quotient(what.rows() + Cfg::kBlockM * of.multicast_size - 1,
                               Cfg::kBlockM * of.multicast_size)),
        tiles_n_((what.columns() + Cfg::kBlockN - 1) / Cfg::kBlockN),
        tiles_(tiles_m_ * tiles_n_),
        first_(of.part * split_steps),
        last_(first_ + split_steps < what.steps() ? first_ + split_steps : what.steps()),
        from_(fast_quotient(workgroup, of.size())),
        stride_(fast_quotient(workgroups, of.size())),
        items_(tiles_ * what.layers()),
        pipeline_(lds, of) {}

  // ---- the producer warpgroup: one thread fetches weights and one rows, of different waves, because a
  // step's waits and addresses take one about as long as its products take ----

  ROCM_SD_DEVICE void fetch_weights() {
    if (work_.pdl_wait_weights()) Nvidia::pdl_wait();
    for (int item = from_; item < items_; item += stride_) {
      const Tile tile = tile_of(item);
      const auto block = [&](int piece) { return work_.weight_row(tile.layer, column_of(tile, piece)) / 32; };
      for (int step = first_; step < last_; ++step) {
        const int term_step = step - steps_before_term();
        if constexpr (kMayHaveTerm)
          pipeline_.fetch_weights(term_step < 0 ? work_.weights() : work_.term_weights(),
                                  (term_step < 0 ? step : term_step) * Cfg::kBlockK, Work::kGated ? 2 : 1,
                                  block);
        else
          pipeline_.fetch_weights(work_.weights(), step * Cfg::kBlockK, Work::kGated ? 2 : 1, block);
      }
    }
    pipeline_.drain();
  }
  ROCM_SD_DEVICE void fetch_rows() {
    bool waiting = true;
    const auto wait = [&] {
      if (!waiting) return;
      Nvidia::pdl_wait();
      Nvidia::pdl_launch_next();
      waiting = false;
    };
    if (!waits_late()) wait();
    for (int item = from_; item < items_; item += stride_) {
      const Tile tile = tile_of(item);
      auto rows = work_.rows_of(tile.layer, tile.first_row, first_);
      const auto fetch = [&](char* to, TmaBarrier full) { rows.fetch(to, full); };
      if constexpr (Cfg::kHalo) {
        int step = first_ - work_.tap(first_);
        for (; step < last_; step += work_.halo().taps) pipeline_.fetch_halo(work_.halo().bytes, fetch);
      } else {
        for (int step = first_; step < last_; ++step) {
          if (kMayHaveTerm && step >= steps_before_term()) wait();
          pipeline_.fetch_rows(fetch);
        }
      }
    }
    wait();  // the next kernel begins when the one before has ended, whatever part of k this is
  }
  ROCM_SD_DEVICE bool waits_late() const {
    if constexpr (kMayHaveTerm) return work_.pdl_wait_late();
    return false;
  }
  // The first tile's biases come from memory, while the kernel before is still at work.
  ROCM_SD_DEVICE void prefetch_biases() const {
    const int line = Nvidia::lane(), half = Cfg::kBlockN / 64;
    if (!work_.bias() || from_ >= items_ || line >= Cfg::kBlockN / 32) return;
    const int column = tile_of(from_).first_column;
    const int at = !Work::kGated ? column + 32 * line
                   : line < half ? column / 2 + 32 * line
                                 : (work_.columns() + column) / 2 + 32 * (line - half);
    if (at < work_.columns()) Tma::prefetch_far(work_.bias() + at);
  }
  ROCM_SD_DEVICE void stand_by() const {
    if (kMaySplit && cluster_.parts > 1) pipeline_.stand_by();
  }

  // ---- the consumer warpgroups ----

  ROCM_SD_DEVICE void multiply() {
    const int consumer = Cfg::kPingPong ? Nvidia::uniform(Nvidia::thread() / 128) : 0;
    if (Cfg::kPingPong && consumer == 1) {
      Tma::let_consumer_start(0);
      skip_steps();
    }
    for (int item = from_ + consumer * stride_; item < items_; item += kConsumerGroups * stride_) {
      const Tile tile = tile_of(item);
      Sums acc[kParts];
      Operands operands[kParts];
      begin(acc, operands, tile);
      expect(item + kConsumerGroups * stride_);
      if (Cfg::kPingPong) Tma::wait_for_turn(consumer);
      multiply_tile(acc, operands, tile, [&] {
        if (Cfg::kPingPong && item + stride_ < items_) Tma::let_consumer_start(1 - consumer);
      });
      if (Cfg::kPingPong) skip_steps();
      finish(acc, operands, tile);
    }
  }

 private:
  static constexpr bool kMayHaveTerm = requires(const Work& work) { work.term_weights(); };
  ROCM_SD_DEVICE int steps_before_term() const {
    if constexpr (kMayHaveTerm) return work_.product_steps();
    return 0;
  }
  ROCM_SD_DEVICE Tile tile_of(int item) const {
    const int layer = work_.layers() == 1 ? 0 : item / tiles_;
    const TilePlace tile = tma_place(item - layer * tiles_, tiles_m_, tiles_n_);
    return {layer, (tile.m * cluster_.multicast_size + cluster_.tile) * Cfg::kBlockM, tile.n * Cfg::kBlockN};
  }
  // Gated: a piece of values and one of their gates.
  ROCM_SD_DEVICE int column_of(const Tile& tile, int piece) const {
    return !Work::kGated ? tile.first_column : tile.first_column / 2 + piece * (work_.columns() / 2);
  }
  ROCM_SD_DEVICE Output output_of(const Tile& tile, int part) const {
    const int row = tile.first_row + TmaPlace<Cfg>::row() + 64 * part;
    return work_.output(work_.row(tile.layer, row), work_.row(tile.layer, row + 8),
                        Work::kGated ? tile.first_column / 2 : tile.first_column);
  }

  ROCM_SD_DEVICE void begin(Sums (&acc)[kParts], Operands (&operands)[kParts], const Tile& tile) const {
    unrolled<kParts>([&](int part) { operands[part] = output_of(tile, part).begin(acc[part], pipeline_); });
  }
  ROCM_SD_DEVICE void expect(int item) const {
    if (item < items_) output_of(tile_of(item), 0).expect();
  }
  // started(): when the last products have been started.
  template <class Started>
  ROCM_SD_DEVICE void multiply_tile(Sums (&acc)[kParts], Operands (&operands)[kParts], const Tile& tile,
                                    const Started& started) {
    const auto midway = [&] {
      unrolled<kParts>([&](int part) { output_of(tile, part).midway(operands[part], pipeline_); });
    };
    if constexpr (Cfg::kHalo) {
      midway();
      pipeline_.multiply(acc, last_ - first_, work_.halo(), work_.tap(first_), started);
    } else {
      pipeline_.template multiply<Output::kHolds>(acc, last_ - first_, midway, started);
    }
  }
  ROCM_SD_DEVICE void finish(Sums (&acc)[kParts], const Operands (&operands)[kParts], const Tile& tile) {
    if (waits_late()) Nvidia::pdl_wait();  // what y overwrites may be read until then
    unrolled<kParts>([&](int part) {
      auto&& sums = float_sums<Cfg>(acc[part]);
      if (kMaySplit && cluster_.parts > 1) pipeline_.sum_parts(sums);  // then there is one part
      output_of(tile, part).finish(sums, pipeline_, operands[part]);
    });
  }
  // In ping-pong, the steps of neighbouring items are of different consumer groups. A consumer group starts
  // its steps when the other has started all of its own: until then, what the barriers of its stages say is
  // about those.
  ROCM_SD_DEVICE void skip_steps() {
    pipeline_.skip(last_ - first_);
    if constexpr (Cfg::kHalo) pipeline_.skip_halos((last_ - first_) / work_.halo().taps);
  }

  const Work& work_;
  const TmaCluster& cluster_;
  const int tiles_m_, tiles_n_, tiles_;
  const int first_, last_;           // steps of k
  const int from_, stride_, items_;  // tiles of all layers, of which this cluster takes every stride_-th
  TmaPipeline<Cfg> pipeline_;
};

// splits: parts of k, of split_steps steps and none empty, that a cluster computes beside each other (gated,
// tiles in turn: 1); with more than one, every cluster has one tile. multicast_size: tiles below each other
// that a cluster computes beside each other.
template <class Cfg, class Work>
ROCM_SD_DEVICE void tma_body(const Work& work, int multicast_size, int splits, int split_steps, int workgroup,
                             int workgroups, char* lds) {
  using Body = TmaBody<Cfg, Work>;
  const TmaCluster cluster(workgroup, multicast_size, Body::kMaySplit ? splits : 1);
  const int thread = Nvidia::thread();
  if (thread == Cfg::kConsumers) work.prefetch_maps();
  Body body(work, cluster, split_steps, workgroup, workgroups, lds);
  if (Nvidia::uniform(thread / 128) == Cfg::kConsumers / 128) {
    Tma::give_registers<Cfg::kFetchRegisters>();
    if (thread == Cfg::kConsumers)
      body.fetch_weights();
    else if (thread == Cfg::kConsumers + 32)
      body.fetch_rows();
    else if (thread >= Cfg::kConsumers + 64 && thread < Cfg::kConsumers + 96)
      body.prefetch_biases();
    body.stand_by();
  } else {
    Tma::take_registers<Cfg::kMultiplyRegisters>();
    if (!body.waits_late()) Nvidia::pdl_wait();
    body.multiply();
  }
}

}  // namespace rocm_sd
