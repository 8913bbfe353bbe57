// The main loop of every product, which GEMM and convolution share, whatever the type of their operands:
// C[n][m] += sum over k of weight[n][k] * activation[m][k], a step of kBlockK at a time. How a step's tiles
// come to the matrix units is the pipeline's matter (pipeline/product.hpp), what one product is the atom's.
#pragma once

#include "composable_kernels/pipeline/policy.hpp"
#include "composable_kernels/pipeline/product_ahead.hpp"
#include "composable_kernels/pipeline/product_loads_to_lds.hpp"
#include "composable_kernels/tile/unrolled.hpp"

namespace rocm_sd {

// The tile of workgroup `index`: in bands of kBand tiles of rows, down a band's column first.
struct TilePlace {
  int m, n;
};
ROCM_SD_DEVICE TilePlace tile_place(int index, int tiles_m, int tiles_n) {
  constexpr int kBand = 8;
  const int band = index / (kBand * tiles_n), first = band * kBand;
  const int height = tiles_m - first < kBand ? tiles_m - first : kBand;
  const int within = index - band * kBand * tiles_n;
  return {first + within % height, within / height};
}

// Where in the output a workgroup's tile begins.
struct OutputTile {
  int row, column;
};
template <class Cfg>
ROCM_SD_DEVICE OutputTile output_tile(int index, int rows, int columns) {
  const TilePlace tile = tile_place(index, (rows + Cfg::kBlockM - 1) / Cfg::kBlockM,
                                    (columns + Cfg::kBlockN - 1) / Cfg::kBlockN);
  return {tile.m * Cfg::kBlockM, tile.n * Cfg::kBlockN};
}

// Steps of kBlockK: [first, last).
struct Steps {
  int first, last;
};
// Those of part `split` of k, of split_steps each.
template <class Cfg>
ROCM_SD_DEVICE Steps steps_of_split(int depth, int split, int split_steps) {
  const int steps = (depth + Cfg::kBlockK - 1) / Cfg::kBlockK, first = split * split_steps;
  return {first, first + split_steps < steps ? first + split_steps : steps};
}

// acc += weights x rows^T over the steps k, by the workgroup: every thread must come here. weights, rows:
// Sources (tile/matrix_rows.hpp). lds: Cfg::kLdsBytes, aligned to 16; free for other use after a barrier.
template <class Policy, class Arch, class Cfg, class Weights, class Rows>
ROCM_SD_DEVICE void multiply(Accumulators<Arch, Cfg>& acc, char* lds, const Weights& weights,
                             const Rows& rows, Steps k) {
  if constexpr (std::is_same_v<Policy, LoadsToLds>) {
    if constexpr (Weights::kOneBase && Rows::kOneBase)
      multiply_from_lds<Arch, Cfg>(acc, weights, rows, k.first, k.last);
    else
      multiply<PipelineOf<Arch>, Arch, typename Cfg::OneStage>(acc, lds, weights, rows, k);
  } else if constexpr (Cfg::kShape.ahead > 1) {
    multiply_ahead<Arch, Cfg>(acc, lds, weights, rows, k.first, k.last);
  } else {
    using Pipeline = typename Policy::template Product<Arch, Cfg, Weights, Rows>;
    typename Pipeline::WeightCopy weight_copy(weights);
    typename Pipeline::RowCopy row_copy(rows);
    Pipeline tiles(lds, weight_copy, row_copy, k.last);
    const auto prefetch = [&](int step) { tiles.prefetch(step); };
    unrolled<Pipeline::kAhead>([&](int ahead) { prefetch(k.first + ahead); });
    for (int step = k.first; step < k.last; ++step) {
      tiles.receive();
      if (Pipeline::kPrefetch == Prefetch::kBeforeMma) prefetch(step + Pipeline::kAhead);
      tiles.mma(acc);
      if (Pipeline::kPrefetch == Prefetch::kAfterMma) prefetch(step + Pipeline::kAhead);
      tiles.advance();
    }
    tiles.finish(acc);
  }
}

}  // namespace rocm_sd
