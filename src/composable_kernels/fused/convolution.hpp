// Convolution as an implicit GEMM on NHWC.
// Problem   y[m, n] = epilogue(sum over k = (input, r, s, c) of x[pixel of m under (r, s), c] w[n, k]), or
//           partial sums over a part of k
// Mapping   a workgroup per tile of pixels x channels of y (grid x) and part of k (grid y; with Arch::kSumsParts
//           grid x, too); waves as in the main loop; the phases of a doubled image are grid z
// Traffic   pipeline/product.hpp; neighbouring workgroups share pixels, then filters (tile_place)
// Numerics  float accumulators, k ascending; parts of k are summed in order by gemm_reduce_body, or with
//           Arch::kSumsParts by sum_parts()
// Limits    pixels of whole 16-byte pieces (conv_layout.hpp pads); fewer than 2^31 pixels and pieces
#pragma once

#include "composable_kernels/fused/gemm.hpp"
#include "composable_kernels/tile/conv_gather.hpp"
#include "composable_kernels/tile/pixel_boxes.hpp"

namespace rocm_sd {

template <class T>
struct ConvParams {
  ConvImage image;
  const T* filter;             // [channels, depth], as conv_layout.hpp packs it
  float* partials;             // null, or [splits][pixels][channels]: then epilogue is left to the reduction
  EpilogueParams<T> epilogue;  // rows: pixels; channels: outputs
  int32_t depth;               // elements of k
  int32_t split_steps;         // of kBlockK, in each part of k
  TileParts parts;             // in place of partials with Arch::kSumsParts: of one phase
  // 1, or 4: a 3x3 filter on a doubled image as four 2x2 filters on the image itself, one for each parity of
  // output row and column. image is then the undoubled one, filter [4][channels, depth], epilogue that of all
  // pixels.
  int32_t phases;
  GroupOrder order;  // of tiles, parts and phases
};

// With the maps by which hopper/convolution_tma.hpp fetches the inputs' pixels and the filter, a matrix of
// all phases' rows.
template <class T>
struct TmaConvParams {
  TensorMap x, second, filter;
  ConvParams<T> conv;          // without partials
  int multicast_size, splits;  // in a cluster: of a tile of the filter; of k
  bool pdl_wait_weights;       // the filter was written by a kernel that may still be at work
  bool boxed;        // rows of the product are the pixels of `boxes`, and the maps fetch those, or halos
  PixelBoxes boxes;  // over the outputs: of a phase, where there are several
};

// The output pixel that pixel m of a phase's image becomes: row 2p + down, column 2q + right.
ROCM_SD_DEVICE int conv_phase_pixel(const ConvImage& image, int m, int down, int right) {
  const int row = image.by_row.quotient(m), column = m - row * image.by_row.divisor;
  return (2 * row + down) * 2 * image.by_row.divisor + 2 * column + right;
}

// What finish_tile does with 8 channels of a pixel of the tile.
template <class Arch, class T>
struct ConvFinish {
  using Operands = typename EpilogueFinish<Arch, T, true>::Operands;
  const ConvParams<T>& p;
  float* partial;  // of this part of k, or null
  int first_pixel, first_channel, down, right;

  // -1: beyond the image.
  ROCM_SD_DEVICE int pixel(int row) const {
    const int m = first_pixel + row;
    if (m >= p.image.pixels) return -1;
    return p.phases > 1 ? conv_phase_pixel(p.image, m, down, right) : m;
  }
  ROCM_SD_DEVICE Operands operands(int row, int channel) const {
    const int at = pixel(row);
    if (at < 0 || partial) return {};
    return EpilogueFinish<Arch, T, true>{p.epilogue, 0, first_channel}.operands(at, channel);
  }
  ROCM_SD_DEVICE void operator()(int row, int channel, Channels& v, const Operands& e) const {
    const int at = pixel(row);
    if (at < 0) return;
    if (partial)
      store_partial(partial, p.epilogue.rows, p.epilogue.channels, at, first_channel + channel, v);
    else
      EpilogueFinish<Arch, T, true>{p.epilogue, 0, first_channel}(at, channel, v, e);
  }
};

// index: of the tile, with Arch::kSumsParts of a part of one (tile_part()); split: part of k, else 0; phase:
// of p.phases. lds: Cfg::kLdsBytes. Policy: how tiles come to the matrix units (pipeline/product.hpp).
// for_epilogue(): p again, asked for after the products.
template <class Arch, class Cfg, class Policy = PipelineOf<Arch>, class ForEpilogue>
ROCM_SD_DEVICE void conv_body(const ConvParams<typename Cfg::T>& p, int index, int split, int phase,
                              char* lds, const ForEpilogue& for_epilogue) {
  using T = typename Cfg::T;
  const int channels = p.epilogue.channels, down = phase / 2, right = phase % 2;
  const TilePart work = Arch::kSumsParts ? tile_part(p.parts, index) : TilePart{index, split, -1};
  const OutputTile tile = output_tile<Cfg>(work.tile, p.image.pixels, channels);
  const ConvGather<T, Cfg::kBlockK> x{p.image, tile.row, down, right};
  const T* const filter = p.filter + static_cast<int64_t>(phase) * channels * p.depth;
  const MatrixRows<T> w{filter, p.depth, tile.column, channels, p.depth};
  const bool parted = !Arch::kSumsParts || work.shared();
  const Steps k = steps_of_split<Cfg>(p.depth, work.part, parted ? p.split_steps : p.depth);
  Accumulators<Arch, Cfg> acc{};
  if constexpr (Arch::kBufferLoads) {  // a loop each: what the other needs would cost this one
    using Near = ConvGatherNear<T, Cfg::kBlockK>;
    static_assert(ConvImage::kWhole * Near::kChunk % Cfg::kBlockK == 0);
    if (Near::takes(p.image))
      multiply<Policy, Arch, Cfg>(acc, lds, WholeMatrixRows<T>{w}, Near{x}, k);
    else
      multiply<Policy, Arch, Cfg>(acc, lds, w, x, k);
  } else {
    multiply<Policy, Arch, Cfg>(acc, lds, w, x, k);
  }

  const ConvParams<T>& again = for_epilogue();
  if constexpr (Arch::kSumsParts)
    if (work.shared() &&
        !sum_parts<Arch, Cfg>(acc, again.parts, work.place + phase * again.parts.rest, work.part, lds))
      return;
  float* const partial =
      !Arch::kSumsParts && again.partials
          ? again.partials + static_cast<int64_t>(split) * again.epilogue.rows * again.epilogue.channels
          : nullptr;
  finish_tile<Arch, Cfg, false>(acc, lds,
                                ConvFinish<Arch, T>{again, partial, tile.row, tile.column, down, right});
}
template <class Arch, class Cfg, class Policy = PipelineOf<Arch>>
ROCM_SD_DEVICE void conv_body(const ConvParams<typename Cfg::T>& p, int index, int split, int phase,
                              char* lds) {
  conv_body<Arch, Cfg, Policy>(p, index, split, phase, lds,
                               [&]() -> const ConvParams<typename Cfg::T>& { return p; });
}

}  // namespace rocm_sd
