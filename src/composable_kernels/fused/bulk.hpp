// Products on Hopper with tiles fetched by its copy engine: the part that GEMM and convolution share.
// Mapping   clusters of workgroups take tiles (of rows below each other), or parts of k of them, in turn; a
//           group of waves fetches, two multiply
// Traffic   tile/bulk_product.hpp, tile/bulk_output.hpp; weights of the first tile are fetched while the
//           kernel before is still at work
#pragma once

#include "composable_kernels/fused/gemm.hpp"
#include "composable_kernels/tile/bulk_output.hpp"

namespace rocm_sd {

// Work: what to compute, with
//   rows(), columns()   of the product; kGated: columns of values and of their gates
//   steps()             of k
//   layers()            products of the same extents that differ in weights (phases), beside each other
//   prefetch_maps()     asks for the maps ahead of their use
//   weights()           their map; weight_row(layer, column): the row of it that a column has
//   fetch_rows(layer, first row, step, to, barrier): starts the copy of a step's rows
//   row(layer, row)     the row of y that a row of the product is, or -1
//   tail()
// splits: parts of k, of split_steps steps and none empty, that a cluster computes beside each other (gated,
// or two workgroups on a multiprocessor: 1); with more than one, every cluster has one tile. sharers: tiles
// below each other that a cluster computes beside each other.
template <class Cfg, class Work>
ROCM_SD_DEVICE void bulk_body(const Work& work, int sharers, int splits, int split_steps, int group,
                              int groups, char* lds) {
  constexpr bool kMaySplit = Cfg::kMovesRegisters && !Work::kGated;
  const BulkCluster cluster(group, sharers, kMaySplit ? splits : 1);
  const int tiles_m = (work.rows() + Cfg::kBlockM * sharers - 1) / (Cfg::kBlockM * sharers);
  const int tiles_n = (work.columns() + Cfg::kBlockN - 1) / Cfg::kBlockN, tiles = tiles_m * tiles_n;
  const int first = cluster.part * split_steps;
  const int last = first + split_steps < work.steps() ? first + split_steps : work.steps();
  BulkPipeline<Cfg> pipeline(lds, cluster);
  struct Tile {
    int layer, first_row, first_column;
  };
  const int stride = groups / cluster.size(), items = tiles * work.layers();
  const auto tile_of = [&](int item) {
    const int layer = item / tiles;
    const TilePlace tile = tile_place(item - layer * tiles, tiles_m, tiles_n);
    return Tile{layer, (tile.m * sharers + cluster.tile) * Cfg::kBlockM, tile.n * Cfg::kBlockN};
  };
  if (Nvidia::uniform(Nvidia::thread() / 128) == Cfg::kConsumers / 128) {
    if constexpr (Cfg::kMovesRegisters) Bulk::give_registers<Cfg::kFetchRegisters>();
    if (Nvidia::thread() == Cfg::kConsumers) {
      work.prefetch_maps();
      bool begun = false;
      for (int item = group / cluster.size(); item < items; item += stride) {
        const Tile tile = tile_of(item);
        const auto fetch_weights = [&](int step) {
          const auto block = [&](int i) {
            // Gated: a piece of values and one of their gates.
            const int column =
                !Work::kGated ? tile.first_column : tile.first_column / 2 + i * (work.columns() / 2);
            return work.weight_row(tile.layer, column) / 32;
          };
          pipeline.fetch_weights(work.weights(), step * Cfg::kBlockK, Work::kGated ? 2 : 1, block);
        };
        int fetched = first;
        if (!begun) {
          for (; fetched < last && fetched < first + Cfg::kStages; ++fetched) fetch_weights(fetched);
          Nvidia::begin_kernel();
          Bulk::let_next_start();
          begun = true;
        }
        for (int step = first; step < last; ++step) {
          if (step >= fetched) fetch_weights(step);
          pipeline.fetch_rows([&](char* to, BulkBarrier full) {
            work.fetch_rows(tile.layer, tile.first_row, step, to, full);
          });
        }
      }
      pipeline.drain();
    }
    if (kMaySplit && splits > 1) pipeline.stand_by();
  } else {
    if constexpr (Cfg::kMovesRegisters) Bulk::take_registers<Cfg::kMultiplyRegisters>();
    Nvidia::begin_kernel();
    const auto output_of = [&](const Tile& tile) {
      const int row = tile.first_row + BulkPlace::row();
      return BulkOutput<Cfg, Work::kGated>{work.tail(),
                                           {work.row(tile.layer, row), work.row(tile.layer, row + 8)},
                                           Work::kGated ? tile.first_column / 2 : tile.first_column};
    };
    for (int item = group / cluster.size(); item < items; item += stride) {
      const auto output = output_of(tile_of(item));
      Accumulators<Nvidia, Cfg> acc;
      output.begin(acc, pipeline);
      if (item + stride < items) output_of(tile_of(item + stride)).expect();
      pipeline.multiply(acc, last - first);
      if (kMaySplit && splits > 1) pipeline.sum_parts(acc);
      output.finish(acc, pipeline);
    }
  }
}

}  // namespace rocm_sd
