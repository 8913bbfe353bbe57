// GEMM on Hopper with tiles fetched by its copy engine; see fused/gemm.hpp.
// Mapping   clusters of workgroups take tiles (of rows below each other) and parts of k in turn
// Traffic   tile/bulk_product.hpp      Numerics  as fused/gemm.hpp
// Limits    as fused/gemm.hpp; 16-bit types, one matrix
#pragma once

#include "composable_kernels/fused/gemm.hpp"
#include "composable_kernels/tile/bulk_product.hpp"

namespace rocm_sd {

// groups: workgroups in the grid, a multiple of kCluster. lds: Cfg::kLdsBytes.
template <class Cfg, bool kGated>
ROCM_SD_DEVICE void gemm_bulk_body(const BulkGemmParams<typename Cfg::T>& p, int group, int groups,
                                   char* lds) {
  using T = typename Cfg::T;
  constexpr int kCluster = Cfg::kCluster;
  const GemmParams<T>& g = p.gemm;
  const int rows = g.tail.rows, columns = kGated ? 2 * g.tail.channels : g.tail.channels;
  const int tiles_m = (rows + Cfg::kBlockM * kCluster - 1) / (Cfg::kBlockM * kCluster);
  const int tiles_n = (columns + Cfg::kBlockN - 1) / Cfg::kBlockN, tiles = tiles_m * tiles_n;
  const int steps = (g.depth + Cfg::kBlockK - 1) / Cfg::kBlockK, rank = group % kCluster;
  BulkPipeline<Cfg> pipeline(lds, rank);
  const bool fetches = Nvidia::thread() >= Cfg::kConsumers;

  for (int item = group / kCluster; item < tiles * g.splits; item += groups / kCluster) {
    const int split = item / tiles;
    const TilePlace tile = tile_place(item - split * tiles, tiles_m, tiles_n);
    const int first_row = (tile.m * kCluster + rank) * Cfg::kBlockM, first_column = tile.n * Cfg::kBlockN;
    const int first = split * g.split_steps;
    const int last = first + g.split_steps < steps ? first + g.split_steps : steps;
    if (fetches) {
      // Gated: half of the tile's channels are values, then come their gates (finish_waves pairs them).
      const auto piece_row = [&](int i) {
        constexpr int kValuePieces = Cfg::kPieces / 2;
        if (!kGated) return first_column + i * Cfg::kPieceRows;
        return first_column / 2 + i % kValuePieces * Cfg::kPieceRows +
               (i < kValuePieces ? 0 : g.tail.channels);
      };
      if (Nvidia::thread() == Cfg::kConsumers)
        for (int step = first; step < last; ++step) {
          const int k = step * Cfg::kBlockK;
          pipeline.fetch(p.w, k, piece_row,
                         [&](char* to, BulkBarrier full) { Bulk::fetch(to, p.x, full, k, first_row); });
        }
      continue;
    }
    Accumulators<Nvidia, Cfg> acc{};
    pipeline.multiply(acc, last - first);
    if constexpr (!Cfg::kStays) Bulk::barrier_of(Cfg::kConsumers);  // the stages' last readers
    float* const staged = reinterpret_cast<float*>(pipeline.staging());
    if constexpr (kGated) {
      finish_waves<Nvidia, Cfg, true, Cfg::kStaged>(
          acc, staged, GatedFinish<Nvidia, T>{g.tail, first_row, first_column / 2});
    } else if (g.partials) {
      float* const partial = g.partials + static_cast<int64_t>(split) * rows * columns;
      finish_waves<Nvidia, Cfg, false, Cfg::kStaged>(acc, staged, [&](int row, int channel, float(&v)[8]) {
        store_partial(partial, rows, columns, first_row + row, first_column + channel, v);
      });
    } else {
      finish_waves<Nvidia, Cfg, false, Cfg::kStaged>(acc, staged,
                                                     TailFinish<Nvidia, T>{g.tail, first_row, first_column});
    }
  }
  pipeline.leave();
}

}  // namespace rocm_sd
