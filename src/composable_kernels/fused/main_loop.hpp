// The main loop of every product, which GEMM and convolution share, whatever the type of their operands:
// C[n][m] += sum over k of weight[n][k] * activation[m][k], a step of kBlockK at a time. How a step's tiles
// come to the matrix units is the pipeline's matter (pipeline/product.hpp), what one product is the atom's.
#pragma once

#include "composable_kernels/pipeline/policy.hpp"
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

// Sets of registers that a pipeline's copies pass through in turn: of one that has none, 1.
template <class Pipeline>
constexpr int register_sets() {
  if constexpr (requires { Pipeline::kSets; })
    return Pipeline::kSets;
  else
    return 1;
}

// The step whose copies are in this set of registers.
template <class Pipeline, class Sums>
ROCM_SD_DEVICE void turn_of_set(Pipeline& tiles, Sums& acc, int step, int set) {
  tiles.receive(set);
  tiles.refill_staged(step + Pipeline::kAhead, set);
  tiles.mma(acc, set);
  tiles.refill_direct(step + Pipeline::kAhead, set);
  tiles.advance();
}

// The steps from `step` on, fewer than there are sets. Each within the one before: where control comes to a
// block by two ways from one matrix instruction, clang 19 counts the wait states behind that on the first way
// alone, and the other may be the shorter one.
template <int kSet, class Pipeline, class Sums>
ROCM_SD_DEVICE void last_turns(Pipeline& tiles, Sums& acc, int step, int last) {
  if constexpr (kSet + 1 < Pipeline::kSets)
    if (step < last) {
      turn_of_set(tiles, acc, step, kSet);
      last_turns<kSet + 1>(tiles, acc, step + 1, last);
    }
}

// acc += weights x rows^T over the steps k, by the workgroup: every thread must come here. weights, rows:
// Sources (tile/matrix_rows.hpp). lds: Cfg::kLdsBytes, aligned to 16; free for other use after a barrier.
template <class Policy, class Arch, class Cfg, class Weights, class Rows>
ROCM_SD_DEVICE void multiply(Accumulators<Arch, Cfg>& acc, char* lds, const Weights& weights,
                             const Rows& rows, Steps k) {
  using Pipeline = typename Policy::template Product<Arch, Cfg, Weights, Rows>;
  typename Pipeline::WeightCopy weight_copy(weights);
  typename Pipeline::RowCopy row_copy(rows);
  Pipeline tiles(lds, weight_copy, row_copy, k.last);
  if constexpr (register_sets<Pipeline>() > 1) {
    if (k.first < k.last) {
      unrolled<Pipeline::kAhead>([&](int ahead) { tiles.start(k.first + ahead, ahead); });
      // One way out of the loop: the compiler counts loads under way by how control comes to a place.
      constexpr int kSets = Pipeline::kSets;
      int step = k.first;
      for (; step + kSets <= k.last; step += kSets)
        unrolled<kSets>([&](int set) { turn_of_set(tiles, acc, step + set, set); });
      last_turns<0>(tiles, acc, step, k.last);
    }
    return tiles.finish(acc);
  } else {
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
