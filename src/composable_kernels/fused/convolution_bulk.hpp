// Convolution on Hopper with pixels and filters fetched by its copy engine; see fused/convolution.hpp.
// Mapping   clusters of workgroups take tiles (of pixels that follow each other), parts of k and phases in
// turn Traffic   tile/bulk_product.hpp; a step is 64 channels under one tap, which the engine gathers by
// itself,
//           padding and strides included
// Numerics  as fused/convolution.hpp
// Limits    as fused/convolution.hpp; 16-bit types, channels of each input in whole blocks of 64, strides up
// to
//           8, no doubled image but as phases
#pragma once

#include "composable_kernels/fused/convolution.hpp"
#include "composable_kernels/tile/bulk_product.hpp"

namespace rocm_sd {

// groups: workgroups in the grid, a multiple of kCluster. lds: Cfg::kLdsBytes.
template <class Cfg>
ROCM_SD_DEVICE void conv_bulk_body(const BulkConvParams<typename Cfg::T>& params, int group, int groups,
                                   char* lds) {
  using T = typename Cfg::T;
  constexpr int kCluster = Cfg::kCluster;
  const ConvParams<T>& p = params.conv;
  const ConvImage& image = p.image;
  const int channels = p.tail.channels, rank = group % kCluster;
  const int tiles_m = (image.pixels + Cfg::kBlockM * kCluster - 1) / (Cfg::kBlockM * kCluster);
  const int tiles_n = (channels + Cfg::kBlockN - 1) / Cfg::kBlockN, tiles = tiles_m * tiles_n;
  const int steps = p.depth / Cfg::kBlockK, splits = (steps + p.split_steps - 1) / p.split_steps;
  BulkPipeline<Cfg> pipeline(lds, rank);
  const bool fetches = Nvidia::thread() >= Cfg::kConsumers;

  for (int item = group / kCluster; item < tiles * splits * p.phases; item += groups / kCluster) {
    const int part = item / tiles, phase = part / splits, split = part - phase * splits;
    const TilePlace tile = tile_place(item - part * tiles, tiles_m, tiles_n);
    const int first_pixel = (tile.m * kCluster + rank) * Cfg::kBlockM, first_channel = tile.n * Cfg::kBlockN;
    const int first = split * p.split_steps;
    const int last = first + p.split_steps < steps ? first + p.split_steps : steps;
    const int down = phase / 2, right = phase % 2;
    if (fetches) {
      if (Nvidia::thread() == Cfg::kConsumers) {
        const int n = image.by_image.quotient(first_pixel),
                  in_image = first_pixel - n * image.by_image.divisor;
        const int row = image.by_row.quotient(in_image), column = in_image - row * image.by_row.divisor;
        const int y = row * image.stride - image.pad_top, x = column * image.stride - image.pad_left;
        const int taps = image.filter_h * image.filter_w, steps_of_first = image.first_end * 8 / Cfg::kBlockK;
        const auto piece_row = [&](int i) { return phase * channels + first_channel + i * Cfg::kPieceRows; };
        for (int step = first; step < last; ++step) {
          const int input = step >= steps_of_first ? 1 : 0, within = step - (input ? steps_of_first : 0);
          const int block = within / taps, tap = within - block * taps;
          const int r = image.by_filter_w.quotient(tap), s = tap - r * image.filter_w;
          pipeline.fetch(params.filter, step * Cfg::kBlockK, piece_row, [&](char* to, BulkBarrier full) {
            Bulk::fetch_pixels(to, params.inputs[input], full, block * 64, x, y, n,
                               static_cast<uint16_t>(s + right), static_cast<uint16_t>(r + down));
          });
        }
      }
      continue;
    }
    Accumulators<Nvidia, Cfg> acc{};
    pipeline.multiply(acc, last - first);
    if constexpr (!Cfg::kStays) Bulk::barrier_of(Cfg::kConsumers);  // the stages' last readers
    float* const partial =
        p.partials ? p.partials + static_cast<int64_t>(split) * p.tail.rows * channels : nullptr;
    finish_waves<Nvidia, Cfg, false, Cfg::kStaged>(
        acc, reinterpret_cast<float*>(pipeline.staging()),
        ConvFinish<Nvidia, T>{p, partial, first_pixel, first_channel, down, right});
  }
  pipeline.leave();
}

}  // namespace rocm_sd
