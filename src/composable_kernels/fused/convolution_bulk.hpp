// Convolution on Hopper with pixels and filters fetched by its copy engine; see fused/convolution.hpp.
// Mapping   fused/bulk.hpp; a step is 64 channels under one tap, which the engine gathers by itself, padding
//           and strides included
// Numerics  as fused/convolution.hpp
// Limits    as fused/convolution.hpp; 16-bit types, channels of each input in whole blocks of 64, outputs of
//           32, shifts aligned to 16 bytes, strides up to 8, no doubled image but as phases
#pragma once

#include "composable_kernels/fused/bulk.hpp"
#include "composable_kernels/fused/convolution.hpp"

namespace rocm_sd {

template <class Cfg>
struct BulkConv {
  using T = typename Cfg::T;
  static constexpr bool kGated = false;
  const BulkConvParams<T>& p;

  ROCM_SD_DEVICE const ConvImage& image() const { return p.conv.image; }
  ROCM_SD_DEVICE int rows() const { return image().pixels; }
  ROCM_SD_DEVICE int columns() const { return p.conv.tail.channels; }
  ROCM_SD_DEVICE int steps() const { return p.conv.depth / Cfg::kBlockK; }
  ROCM_SD_DEVICE int layers() const { return p.conv.phases; }
  ROCM_SD_DEVICE const TensorMap& weights() const { return p.filter; }
  ROCM_SD_DEVICE void prefetch_maps() const {
    Bulk::prefetch(p.filter);
    Bulk::prefetch(p.x);
  }
  ROCM_SD_DEVICE int weight_row(int phase, int column) const { return phase * columns() + column; }
  ROCM_SD_DEVICE void fetch_rows(int phase, int first_pixel, int step, char* to, BulkBarrier full) const {
    const ConvImage& of = image();
    const int n = of.by_image.quotient(first_pixel), in_image = first_pixel - n * of.by_image.divisor;
    const int row = of.by_row.quotient(in_image), column = in_image - row * of.by_row.divisor;
    const int taps = of.filter_h * of.filter_w, steps_of_first = of.first_end * 8 / Cfg::kBlockK;
    const int input = step >= steps_of_first ? 1 : 0, within = step - (input ? steps_of_first : 0);
    const int block = within / taps, tap = within - block * taps;
    const int r = of.by_filter_w.quotient(tap), s = tap - r * of.filter_w;
    Bulk::fetch_pixels(to, input ? p.second : p.x, full, block * 64, column * of.stride - of.pad_left,
                       row * of.stride - of.pad_top, n, static_cast<uint16_t>(s + phase % 2),
                       static_cast<uint16_t>(r + phase / 2));
  }
  ROCM_SD_DEVICE int row(int phase, int pixel) const {
    if (pixel >= image().pixels) return -1;
    return layers() > 1 ? conv_phase_pixel(image(), pixel, phase / 2, phase % 2) : pixel;
  }
  ROCM_SD_DEVICE const TailParams<T>& tail() const { return p.conv.tail; }
};

// groups: workgroups in the grid, whole clusters. lds: Cfg::kLdsBytes.
template <class Cfg>
ROCM_SD_DEVICE void conv_bulk_body(const BulkConvParams<typename Cfg::T>& p, int group, int groups,
                                   char* lds) {
  bulk_body<Cfg>(BulkConv<Cfg>{p}, p.sharers, p.splits, p.conv.split_steps, group, groups, lds);
}

}  // namespace rocm_sd
