// Convolution as an implicit GEMM on NHWC.
// Problem   y[m, n] = tail(sum over k = (input, r, s, c) of x[pixel of m under (r, s), c] w[n, k]), or
// partial
//           sums over a part of k
// Mapping   a workgroup per tile of pixels x channels of y (grid x) and part of k (grid y); waves as in the
//           main loop
// Traffic   tile/main_loop.hpp; neighbouring workgroups share pixels, then filters (tile_place)
// Numerics  float accumulators, k ascending; parts of k are summed in order by gemm_reduce_body
// Limits    pixels of whole 16-byte pieces (conv_layout.hpp pads); fewer than 2^31 pixels and pieces
#pragma once

#include "composable_kernels/fused/gemm.hpp"
#include "composable_kernels/tile/conv_gather.hpp"

namespace rocm_sd {

template <class T>
struct ConvParams {
  ConvImage image;
  const T* filter;      // [channels, depth], as conv_layout.hpp packs it
  float* partials;      // null, or [splits][pixels][channels]: then tail is left to the reduction
  TailParams<T> tail;   // rows: pixels; channels: outputs
  int32_t depth;        // elements of k
  int32_t split_steps;  // of kBlockK, in each part of k
};

// index: of the tile; split: part of k. lds: Cfg::kLdsBytes. Product: whose multiply() is the main loop.
template <class Arch, class Cfg, class Product = WaveProduct<Arch, Cfg>>
ROCM_SD_DEVICE void conv_body(const ConvParams<typename Cfg::T>& p, int index, int split, char* lds) {
  using T = typename Cfg::T;
  const int pixels = p.tail.rows, channels = p.tail.channels;
  const TilePlace tile = tile_place(index, (pixels + Cfg::kBlockM - 1) / Cfg::kBlockM,
                                    (channels + Cfg::kBlockN - 1) / Cfg::kBlockN);
  const int first_pixel = tile.m * Cfg::kBlockM, first_channel = tile.n * Cfg::kBlockN;
  const ConvGather<T> x{p.image, first_pixel};
  const MatrixRows<T> w{p.filter, p.depth, first_channel, channels, p.depth};
  const int steps = (p.depth + Cfg::kBlockK - 1) / Cfg::kBlockK, first = split * p.split_steps;
  const int last = first + p.split_steps < steps ? first + p.split_steps : steps;
  Accumulators<Arch, Cfg> acc{};
  Product::multiply(acc, lds, w, x, first, last);

  if (p.partials) {
    float* const partial = p.partials + static_cast<int64_t>(split) * pixels * channels;
    finish_tile<Arch, Cfg, false>(acc, lds, [&](int row, int channel, float(&v)[8]) {
      store_partial(partial, pixels, channels, first_pixel + row, first_channel + channel, v);
    });
  } else {
    finish_tile<Arch, Cfg, false>(acc, lds, [&](int row, int channel, float(&v)[8]) {
      finish_tail<Arch>(p.tail, first_pixel + row, first_channel + channel, v);
    });
  }
}

}  // namespace rocm_sd
