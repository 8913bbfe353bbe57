// GEMM: a linear layer as one product of matrices.
// Problem   y[m, n] = epilogue(sum over k of x[m, k] w[n, k] + sum over r of d[m, r] up[n, r]), or its gated form,
//           or partial sums over a part of k; d and up, a low-rank term, may be missing
// Mapping   a workgroup per tile of y (grid x), per part of k and matrix of a batch (grid y), or with
//           Arch::kSumsParts per part of a tile (grid x) and matrix of a batch (grid y); waves as in the main
//           loop
// Traffic   pipeline/product.hpp; neighbouring workgroups take tiles of a few rows of tiles, so that both
//           operands stay in the last cache
// Numerics  float accumulators, k ascending, then r; parts of k are summed in order by gemm_reduce_body, or with
//           Arch::kSumsParts by sum_parts()
// Limits    depth, rank and strides are multiples of 16 bytes, operands aligned to them; rows and columns any;
//           a term by the pipelines of PipelineOf, by loads to LDS and by TMA only
#pragma once

#include "composable_kernels/fused/epilogue.hpp"
#include "composable_kernels/fused/main_loop.hpp"
#include "composable_kernels/tile/group_order.hpp"
#include "composable_kernels/tile/output.hpp"
#include "composable_kernels/tile/tile_parts.hpp"

namespace rocm_sd {

// d up^T beside the product, as if x and w went on by `rank` columns: no second product has to write and read
// y.
template <class T>
struct GemmTerm {
  const T *d, *up;  // [rows, rank], [columns, rank], dense
  int rank;         // 0: there is none
};

template <class T>
struct GemmParams {
  const T *x, *w;   // [rows, depth], [columns, depth]; gated: w is [2 epilogue.channels, depth], values first
  float* partials;  // null, or [splits][rows][columns]: then epilogue is left to the reduction
  GemmTerm<T> term;                   // of one matrix; with parts of k, of the last
  EpilogueParams<T> epilogue;         // epilogue.rows rows; epilogue.channels columns (gated: half of w's)
  int64_t x_stride, w_stride;         // elements from row to row
  int64_t x_batch, w_batch, y_batch;  // from matrix to matrix of the batch
  int depth;
  int splits, split_steps;  // parts of k, and steps of kBlockK in each
  TileParts parts;          // in place of splits and partials with Arch::kSumsParts
  bool aligned;             // rows of x and w begin at multiples of 16 bytes (else only gemv)
  GroupOrder order;         // of tiles and parts
};

// With the maps by which hopper/gemm_tma.hpp fetches x and w.
template <class T>
struct TmaGemmParams {
  TensorMap x, w;
  TensorMap d, up;        // of the term, where there is one
  GemmParams<T> gemm;     // splits: within a cluster, without partials; split_steps counts the term's
  int multicast_size;     // of a tile of w, in a cluster
  bool pdl_wait_weights;  // w was written by a kernel that may still be at work
  bool pdl_wait_late;     // of what is read that kernel wrote d alone, or nothing
};

// What one matrix of the batch multiplies: x [rows, depth] and w [columns, depth]; gated: w's values first.
template <class T>
struct GemmOperands {
  const T *x, *w;
  int64_t x_stride, w_stride;  // elements from row to row
  int rows, columns, depth;
};

// acc += a tile of x w^T, over the steps k.
template <class Policy, bool kGated, class Arch, class Cfg>
ROCM_SD_DEVICE void gemm_tile(Accumulators<Arch, Cfg>& acc, char* lds, const GemmOperands<typename Cfg::T>& p,
                              OutputTile tile, Steps k) {
  using T = typename Cfg::T;
  const MatrixRows<T> x{p.x, p.x_stride, tile.row, p.rows, p.depth};
  using Weights = std::conditional_t<kGated, GatedRows<Cfg>, MatrixRows<T>>;
  const Weights w{p.w, p.w_stride, tile.column, p.columns, p.depth};
  if constexpr (std::is_same_v<Policy, LoadsToLds>) {
    // Each of these many loads would need an offset of its own where a step is not whole.
    if (p.depth % Cfg::kBlockK == 0)
      multiply<Policy, Arch, Cfg>(acc, lds, InWholeSteps<Weights>{w}, WholeMatrixRows<T>{x}, k);
    else
      multiply<PipelineOf<Arch>, Arch, typename Cfg::OneStage>(acc, lds, w, x, k);
  } else {
    multiply<Policy, Arch, Cfg>(acc, lds, w, x, k);
  }
}

// Not by warpgroup MMA, whose sums nothing but products may define.
template <class Policy, class Arch>
inline constexpr bool kTakesTerm =
    std::is_same_v<Policy, PipelineOf<Arch>> || std::is_same_v<Policy, LoadsToLds>;

// index: of the tile; part: split + splits * matrix of the batch; with Arch::kSumsParts index: of a part of a
// tile (tile_part()); part: matrix of the batch. lds: Cfg::kLdsBytes. Policy: how tiles come to the matrix
// units (pipeline/product.hpp).
template <class Arch, class Cfg, bool kGated, class Policy = PipelineOf<Arch>>
ROCM_SD_DEVICE void gemm_body(const GemmParams<typename Cfg::T>& p, int index, int part, char* lds) {
  using T = typename Cfg::T;
  const int rows = p.epilogue.rows, columns = kGated ? 2 * p.epilogue.channels : p.epilogue.channels;
  const TilePart work = Arch::kSumsParts ? tile_part(p.parts, index) : TilePart{index, part % p.splits, -1};
  const OutputTile tile = output_tile<Cfg>(work.tile, rows, columns);
  const int matrix = Arch::kSumsParts ? part : part / p.splits;
  const GemmOperands<T> operands{
      p.x + matrix * p.x_batch, p.w + matrix * p.w_batch, p.x_stride, p.w_stride, rows, columns, p.depth};
  Accumulators<Arch, Cfg> acc{};
  const bool parted = !Arch::kSumsParts || work.shared();
  const Steps steps = steps_of_split<Cfg>(p.depth, work.part, parted ? p.split_steps : p.depth);
  if constexpr (kTakesTerm<Policy, Arch>) {
    // One main loop in the code, run twice: a second copy would double the kernel.
    const int last = Arch::kSumsParts ? (parted ? p.parts.splits - 1 : 0) : p.splits - 1;
    const int sources = p.term.rank > 0 && work.part == last ? 2 : 1;
    rolled(sources, [&](int source) {
      const bool of_term = source == 1;
      if (of_term) Arch::barrier();  // all waves have read the last tiles
      const GemmOperands<T> from{of_term ? p.term.d : operands.x,
                                 of_term ? p.term.up : operands.w,
                                 of_term ? p.term.rank : operands.x_stride,
                                 of_term ? p.term.rank : operands.w_stride,
                                 rows,
                                 columns,
                                 of_term ? p.term.rank : p.depth};
      gemm_tile<Policy, kGated, Arch, Cfg>(
          acc, lds, from, tile, of_term ? steps_of_split<Cfg>(p.term.rank, 0, p.term.rank) : steps);
    });
  } else {
    gemm_tile<Policy, kGated, Arch, Cfg>(acc, lds, operands, tile, steps);
  }

  if constexpr (Arch::kSumsParts)
    if (work.shared() && !sum_parts<Arch, Cfg>(acc, p.parts, work.place, work.part, lds)) return;
  EpilogueParams<T> epilogue = p.epilogue;
  epilogue.y += matrix * p.y_batch;
  if constexpr (kGated) {
    finish_tile<Arch, Cfg, true>(acc, lds, GatedFinish<Arch, T>{epilogue, tile.row, tile.column / 2});
  } else if (!Arch::kSumsParts && p.partials) {
    float* const partial = p.partials + static_cast<int64_t>(part) * rows * columns;
    finish_tile<Arch, Cfg, false>(acc, lds, [&](int row, int channel, const Channels& v) {
      store_partial(partial, rows, columns, tile.row + row, tile.column + channel, v);
    });
  } else {
    finish_tile<Arch, Cfg, false>(acc, lds, EpilogueFinish<Arch, T>{epilogue, tile.row, tile.column});
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
template <class Arch, class T, bool kSlopes = false>
ROCM_SD_DEVICE void gemm_reduce_body(const GemmReduceParams<T>& p, int64_t index) {
  const int pieces = (p.epilogue.channels + 7) / 8;
  const auto row = static_cast<int>(index / pieces);
  const int channel = static_cast<int>(index % pieces) * 8;
  if (row >= p.epilogue.rows) return;
  const int columns = p.gated ? 2 * p.epilogue.channels : p.epilogue.channels;
  const int64_t size = static_cast<int64_t>(p.epilogue.rows) * columns;
  const bool wide = p.epilogue.channels % 8 == 0;
  const auto sum = [&](Channels& v, int column) {
    const ChannelSpan span{p.epilogue.channels - channel, wide};
    const float* from = p.partials + static_cast<int64_t>(row) * columns + column;
    load(v, from, span);
    for (int s = 1; s < p.splits; ++s) {
      Channels term;
      load(term, from + s * size, span);
      add(v, term);
    }
  };
  Channels v;
  sum(v, channel);
  if (p.gated) {
    Channels gate;
    sum(gate, p.epilogue.channels + channel);
    finish_gated<Arch>(p.epilogue, row, channel, v, gate);
  } else {
    finish_epilogue<Arch, kSlopes>(p.epilogue, row, channel, v);
  }
}

}  // namespace rocm_sd
