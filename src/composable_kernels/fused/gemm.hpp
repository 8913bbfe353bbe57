// GEMM: a linear layer as one product of matrices.
// Problem   y[m, n] = epilogue(sum over k of x[m, k] w[n, k]), or its gated form, or partial sums over a part of
//           k
// Mapping   a workgroup per tile of y (grid x), per part of k and matrix of a batch (grid y); waves as in the
//           main loop
// Traffic   pipeline/; neighbouring workgroups take tiles of a few rows of tiles, so that both
//           operands stay in the last cache
// Numerics  float accumulators, k ascending; parts of k are summed in order by gemm_reduce_body
// Limits    depth and strides are multiples of 16 bytes, operands aligned to them; rows and columns any
#pragma once

#include "composable_kernels/fused/epilogue.hpp"
#include "composable_kernels/pipeline/product_policy.hpp"
#include "composable_kernels/tile/output.hpp"

namespace rocm_sd {

template <class T>
struct GemmParams {
  const T *x, *w;   // [rows, depth], [columns, depth]; gated: w is [2 epilogue.channels, depth], values first
  float* partials;  // null, or [splits][rows][columns]: then epilogue is left to the reduction
  EpilogueParams<T> epilogue;         // epilogue.rows rows; epilogue.channels columns (gated: half of w's)
  int64_t x_stride, w_stride;         // elements from row to row
  int64_t x_batch, w_batch, y_batch;  // from matrix to matrix of the batch
  int depth;
  int splits, split_steps;  // parts of k, and steps of kBlockK in each
  bool aligned;             // rows of x and w begin at multiples of 16 bytes (else only gemv)
};

// With the maps by which hopper/gemm_tma.hpp fetches x and w.
template <class T>
struct TmaGemmParams {
  TensorMap x, w;
  GemmParams<T> gemm;     // splits: within a cluster, without partials
  int multicast_size;     // of a tile of w, in a cluster
  bool pdl_wait_weights;  // w was written by a kernel that may still be at work
};

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

// The main loop as bodies take it, so that a family may offer another (hopper/wgmma_product.hpp).
template <class Arch, class Cfg>
struct WaveProduct {
  template <class Weights, class Rows>
  static ROCM_SD_DEVICE void multiply(Accumulators<Arch, Cfg>& acc, char* lds, const Weights& weights,
                                      const Rows& rows, int first, int last) {
    using Pipeline = ProductPipeline<Arch, Cfg, Weights, Rows>;
    typename Pipeline::WeightCopy weight_copy(weights);
    typename Pipeline::RowCopy row_copy(rows);
    Pipeline tiles(lds, weight_copy, row_copy, last);
    main_loop(acc, tiles, first, last);
  }
};

// index: of the tile; part: split + splits * matrix of the batch. lds: Cfg::kLdsBytes. Product: whose
// multiply() is the main loop.
template <class Arch, class Cfg, bool kGated, class Product = WaveProduct<Arch, Cfg>>
ROCM_SD_DEVICE void gemm_body(const GemmParams<typename Cfg::T>& p, int index, int part, char* lds) {
  using T = typename Cfg::T;
  const int rows = p.epilogue.rows, columns = kGated ? 2 * p.epilogue.channels : p.epilogue.channels;
  const TilePlace tile = tile_place(index, (rows + Cfg::kBlockM - 1) / Cfg::kBlockM,
                                    (columns + Cfg::kBlockN - 1) / Cfg::kBlockN);
  const int split = part % p.splits, matrix = part / p.splits;
  const int first_row = tile.m * Cfg::kBlockM, first_column = tile.n * Cfg::kBlockN;
  const MatrixRows<T> x{p.x + matrix * p.x_batch, p.x_stride, first_row, rows, p.depth};
  using Weights = std::conditional_t<kGated, GatedRows<Cfg>, MatrixRows<T>>;
  const Weights w{p.w + matrix * p.w_batch, p.w_stride, first_column, columns, p.depth};
  const int steps = (p.depth + Cfg::kBlockK - 1) / Cfg::kBlockK, first = split * p.split_steps;
  const int last = first + p.split_steps < steps ? first + p.split_steps : steps;
  Accumulators<Arch, Cfg> acc{};
  Product::multiply(acc, lds, w, x, first, last);

  EpilogueParams<T> epilogue = p.epilogue;
  epilogue.y += matrix * p.y_batch;
  if constexpr (kGated) {
    finish_tile<Arch, Cfg, true>(acc, lds, GatedFinish<Arch, T>{epilogue, first_row, first_column / 2});
  } else if (p.partials) {
    float* const partial = p.partials + static_cast<int64_t>(part) * rows * columns;
    finish_tile<Arch, Cfg, false>(acc, lds, [&](int row, int channel, float(&v)[8]) {
      store_partial(partial, rows, columns, first_row + row, first_column + channel, v);
    });
  } else {
    finish_tile<Arch, Cfg, false>(acc, lds, EpilogueFinish<Arch, T>{epilogue, first_row, first_column});
  }
}

template <class T>
struct GemmReduceParams {
  const float* partials;  // [splits][rows][columns]
  EpilogueParams<T> epilogue;
  int splits;
  bool gated;  // columns = 2 epilogue.channels, else epilogue.channels
};

// Sums the parts in order and finishes. index: of 8 channels of a row, row by row, of
// rows * ceil(channels / 8).
template <class Arch, class T>
ROCM_SD_DEVICE void gemm_reduce_body(const GemmReduceParams<T>& p, int64_t index) {
  const int pieces = (p.epilogue.channels + 7) / 8;
  const auto row = static_cast<int>(index / pieces);
  const int channel = static_cast<int>(index % pieces) * 8;
  if (row >= p.epilogue.rows) return;
  const int columns = p.gated ? 2 * p.epilogue.channels : p.epilogue.channels;
  const int64_t size = static_cast<int64_t>(p.epilogue.rows) * columns;
  const bool wide = p.epilogue.channels % 8 == 0;
  const auto sum = [&](float(&v)[8], int column) {
    const float* from = p.partials + static_cast<int64_t>(row) * columns + column;
    load8(v, from, wide, p.epilogue.channels - channel);
    for (int s = 1; s < p.splits; ++s) {
      float term[8];
      load8(term, from + s * size, wide, p.epilogue.channels - channel);
      ROCM_SD_UNROLL
      for (int i = 0; i < 8; ++i) v[i] += term[i];
    }
  };
  float v[8];
  sum(v, channel);
  if (p.gated) {
    float gate[8];
    sum(gate, p.epilogue.channels + channel);
    finish_gated<Arch>(p.epilogue, row, channel, v, gate);
  } else {
    finish_epilogue<Arch>(p.epilogue, row, channel, v);
  }
}

}  // namespace rocm_sd
