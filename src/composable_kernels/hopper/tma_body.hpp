// Products on Hopper with tiles fetched by TMA: the part that GEMM and convolution share.
// Problem   output(sum over k of rows[m, k] weights[n, k]); what rows and output are is the Work's matter
// Mapping   clusters of workgroups take tiles (of rows below each other), or parts of k of them, in turn; a
//           group of waves fetches, two multiply
// Traffic   hopper/tma_pipeline.hpp, hopper/tma_output.hpp; weights of the first tile are fetched while the
//           kernel before is still at work
// Numerics  hopper/tma_pipeline.hpp
// Limits    16-bit or 8-bit operands whose maps TMA takes; columns in whole blocks of 32
#pragma once

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
//   pdl_wait_weights()     whether the kernel before may still be writing them
//   bias()              of all columns, or null
//   rows_of(layer, first row, step)   of the steps from there on: fetch(to, barrier) starts the copy of the
//     next one's, with halos of those of all taps
//   halo(), tap(step)   with halos: what they are, and which of their taps a step is
//   row(layer, row)     the row of y that a row of the product is, or -1
//   output(rows, first channel)   what becomes of the sums of a lane's two rows (hopper/tma_output.hpp): its
//     begin() fills them and returns an Operands, to which its midway() adds (if kHolds) and which its
//     finish() gets
// splits: parts of k, of split_steps steps and none empty, that a cluster computes beside each other (gated,
// tiles in turn, or two workgroups on a compute unit: 1); with more than one, every cluster has one tile.
// multicast_size: tiles below each other that a cluster computes beside each other.
template <class Cfg, class Work>
ROCM_SD_DEVICE void tma_body(const Work& work, int multicast_size, int splits, int split_steps, int group,
                             int workgroups, char* lds) {
  constexpr bool kMaySplit = !Cfg::kPingPong && !Work::kGated;
  const TmaCluster cluster(group, multicast_size, kMaySplit ? splits : 1);
  const int tiles_m =
      fast_quotient(work.rows() + Cfg::kBlockM * multicast_size - 1, Cfg::kBlockM * multicast_size);
  const int tiles_n = (work.columns() + Cfg::kBlockN - 1) / Cfg::kBlockN, tiles = tiles_m * tiles_n;
  const int first = cluster.part * split_steps;
  const int last = first + split_steps < work.steps() ? first + split_steps : work.steps();
  if (Nvidia::thread() == Cfg::kConsumers) work.prefetch_maps();
  TmaPipeline<Cfg> pipeline(lds, cluster);
  struct Tile {
    int layer, first_row, first_column;
  };
  const int stride = fast_quotient(workgroups, cluster.size()), items = tiles * work.layers();
  const auto tile_of = [&](int item) {
    const int layer = work.layers() == 1 ? 0 : item / tiles;
    const TilePlace tile = tma_place(item - layer * tiles, tiles_m, tiles_n);
    return Tile{layer, (tile.m * multicast_size + cluster.tile) * Cfg::kBlockM, tile.n * Cfg::kBlockN};
  };
  if (Nvidia::uniform(Nvidia::thread() / 128) == Cfg::kConsumers / 128) {
    Tma::give_registers<Cfg::kFetchRegisters>();
    // One thread for weights and one for rows, of different waves: a step's waits and addresses take one
    // about as long as its products take.
    if (Nvidia::thread() == Cfg::kConsumers) {
      if (work.pdl_wait_weights()) Nvidia::pdl_wait();
      for (int item = fast_quotient(group, cluster.size()); item < items; item += stride) {
        const Tile tile = tile_of(item);
        const auto block = [&](int i) {
          // Gated: a piece of values and one of their gates.
          const int column =
              !Work::kGated ? tile.first_column : tile.first_column / 2 + i * (work.columns() / 2);
          return work.weight_row(tile.layer, column) / 32;
        };
        for (int step = first; step < last; ++step)
          pipeline.fetch_weights(work.weights(), step * Cfg::kBlockK, Work::kGated ? 2 : 1, block);
      }
      pipeline.drain();
    } else if (Nvidia::thread() == Cfg::kConsumers + 32) {
      Nvidia::pdl_wait();
      Nvidia::pdl_launch_next();
      for (int item = fast_quotient(group, cluster.size()); item < items; item += stride) {
        const Tile tile = tile_of(item);
        auto rows = work.rows_of(tile.layer, tile.first_row, first);
        const auto fetch = [&](char* to, TmaBarrier full) { rows.fetch(to, full); };
        if constexpr (Cfg::kHalo) {
          int step = first - work.tap(first);
          for (; step < last; step += work.halo().taps) pipeline.fetch_halo(work.halo().bytes, fetch);
        } else {
          for (int step = first; step < last; ++step) pipeline.fetch_rows(fetch);
        }
      }
    } else if (Nvidia::thread() >= Cfg::kConsumers + 64 && Nvidia::thread() < Cfg::kConsumers + 96) {
      // The first tile's biases come from memory, while the kernel before is still at work.
      const int item = fast_quotient(group, cluster.size()), line = Nvidia::lane(), half = Cfg::kBlockN / 64;
      if (work.bias() && item < items && line < Cfg::kBlockN / 32) {
        const int column = tile_of(item).first_column;
        const int at = !Work::kGated ? column + 32 * line
                       : line < half ? column / 2 + 32 * line
                                     : (work.columns() + column) / 2 + 32 * (line - half);
        if (at < work.columns()) Tma::prefetch_far(work.bias() + at);
      }
    }
    if (kMaySplit && splits > 1) pipeline.stand_by();
  } else {
    Tma::take_registers<Cfg::kMultiplyRegisters>();
    Nvidia::pdl_wait();
    const auto output_of = [&](const Tile& tile, int part) {
      const int row = tile.first_row + TmaPlace<Cfg>::row() + 64 * part;
      return work.output(work.row(tile.layer, row), work.row(tile.layer, row + 8),
                         Work::kGated ? tile.first_column / 2 : tile.first_column);
    };
    // In ping-pong, the steps of neighbouring items are of different consumer groups. A consumer group starts
    // its steps when the other has started all of its own: until then, what the barriers of its stages say is
    // about those.
    constexpr int kConsumerGroups = Cfg::kPingPong ? 2 : 1;
    const int consumer = Cfg::kPingPong ? Nvidia::uniform(Nvidia::thread() / 128) : 0;
    const int from = fast_quotient(group, cluster.size()) + consumer * stride, steps = last - first;
    const auto skip = [&] {
      pipeline.skip(steps);
      if constexpr (Cfg::kHalo) pipeline.skip_halos(steps / work.halo().taps);
    };
    if (Cfg::kPingPong && consumer == 1) {
      Tma::let_consumer_start(0);
      skip();
    }
    for (int item = from; item < items; item += kConsumerGroups * stride) {
      const Tile tile = tile_of(item);
      Accumulators<Nvidia, Cfg> acc[Cfg::kParts];
      using Output = decltype(output_of(tile, 0));
      typename Output::Operands operands[Cfg::kParts];
      ROCM_SD_UNROLL
      for (int part = 0; part < Cfg::kParts; ++part)
        operands[part] = output_of(tile, part).begin(acc[part], pipeline);
      if (item + kConsumerGroups * stride < items)
        output_of(tile_of(item + kConsumerGroups * stride), 0).expect();
      if (Cfg::kPingPong) Tma::wait_for_turn(consumer);
      const auto started = [&] {
        if (Cfg::kPingPong && item + stride < items) Tma::let_consumer_start(1 - consumer);
      };
      const auto midway = [&] {
        ROCM_SD_UNROLL
        for (int part = 0; part < Cfg::kParts; ++part) output_of(tile, part).midway(operands[part], pipeline);
      };
      if constexpr (Cfg::kHalo) {
        midway();
        pipeline.multiply(acc, steps, work.halo(), work.tap(first), started);
      } else {
        pipeline.template multiply<Output::kHolds>(acc, steps, midway, started);
      }
      if (Cfg::kPingPong) skip();
      ROCM_SD_UNROLL
      for (int part = 0; part < Cfg::kParts; ++part) {
        auto&& sums = float_sums<Cfg>(acc[part]);
        if (kMaySplit && splits > 1) pipeline.sum_parts(sums);  // then there is one part
        output_of(tile, part).finish(sums, pipeline, operands[part]);
      }
    }
  }
}

}  // namespace rocm_sd
