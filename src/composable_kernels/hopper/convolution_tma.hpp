// Convolution on Hopper with pixels and filters fetched by TMA.
// Problem   as fused/convolution.hpp, without partial sums in memory
// Mapping   hopper/tma_body.hpp; a step is 64 channels under one tap, padding and strides by TMA itself:
//           as boxes of the image, or, where those would lie badly, gathered pixel by pixel, which is slower
// Traffic   hopper/tma_body.hpp; a pixel once for each tap, or once for all taps (halos)
// Numerics  as fused/convolution.hpp
// Limits    as fused/convolution.hpp; 16-bit types, channels of each input in whole blocks of 64, outputs of
//           32, shifts aligned to 16 bytes, strides up to 8, no doubled image but as phases
#pragma once

#include "composable_kernels/fused/convolution.hpp"
#include "composable_kernels/hopper/tma_body.hpp"

namespace rocm_sd {

template <class Cfg>
struct TmaConv {
  using T = typename Cfg::T;
  static constexpr bool kGated = false;
  const TmaConvParams<T>& p;

  ROCM_SD_DEVICE const ConvImage& image() const { return p.conv.image; }
  ROCM_SD_DEVICE int rows() const {
    return Cfg::kHalo || p.boxed ? static_cast<int>(p.boxes.boxes()) * PixelBoxes::kPixels : image().pixels;
  }
  ROCM_SD_DEVICE int columns() const { return p.conv.epilogue.channels; }
  ROCM_SD_DEVICE int steps() const { return p.conv.depth / Cfg::kBlockK; }
  ROCM_SD_DEVICE int layers() const { return p.conv.phases; }
  ROCM_SD_DEVICE const TensorMap& weights() const { return p.filter; }
  ROCM_SD_DEVICE void prefetch_maps() const {
    Tma::prefetch(p.filter);
    Tma::prefetch(p.x);
  }
  ROCM_SD_DEVICE int weight_row(int phase, int column) const { return phase * columns() + column; }
  // The pixels under one tap after the other of one block of channels after the other.
  struct Rows {
    const TmaConvParams<T>& p;
    int image, y, x;  // of the pixel under the filter's first tap
    int phase;
    bool second;  // input
    int channel, down, right;

    ROCM_SD_DEVICE void fetch(char* to, TmaBarrier full) {
      const TensorMap& map = second ? p.second : p.x;
      if (Cfg::kHalo || p.boxed)
        Tma::fetch_box(to, map, full, channel, x + right + phase % 2, y + down + phase / 2, image);
      else
        Tma::fetch_pixels(to, map, full, channel, x, y, image, static_cast<uint16_t>(right + phase % 2),
                          static_cast<uint16_t>(down + phase / 2));
      if (!Cfg::kHalo) {
        if (++right < p.conv.image.filter_w) return;
        right = 0;
        if (++down < p.conv.image.filter_h) return;
        down = 0;
      }
      channel += Cfg::kBlockK;
      if (second || channel < p.conv.image.pieces[0] * 8) return;
      second = true;
      channel = 0;
    }
  };
  ROCM_SD_DEVICE Rows rows_of(int phase, int first_row, int step) const {
    const ConvImage& of = image();
    PixelBoxes::Pixel at;
    if (Cfg::kHalo || p.boxed) {
      at = p.boxes.corner(first_row / PixelBoxes::kPixels);
    } else {
      const int n = of.by_image.quotient(first_row), in_image = first_row - n * of.by_image.divisor;
      const int row = of.by_row.quotient(in_image);
      at = {n, row, in_image - row * of.by_row.divisor};
    }
    const int block = of.by_block_taps[0].quotient(step * ConvImage::kWhole),
              of_tap = Cfg::kHalo ? 0 : tap(step);
    const bool second = block * ConvImage::kWhole >= of.pieces[0];
    const int down = of.by_filter_w.quotient(of_tap);
    return {p,
            at.image,
            at.row * of.stride - of.pad_top,
            at.column * of.stride - of.pad_left,
            phase,
            second,
            (block * ConvImage::kWhole - (second ? of.pieces[0] : 0)) * 8,
            down,
            of_tap - down * of.filter_w};
  }
  ROCM_SD_DEVICE int tap(int step) const {
    const int block = image().by_block_taps[0].quotient(step * ConvImage::kWhole);
    return step - block * image().filter_h * image().filter_w;
  }
  ROCM_SD_DEVICE Halo halo() const {
    const ConvImage& of = image();
    const int pitch = (p.boxes.box_columns() + of.filter_w - 1) * 128;
    const int height = p.boxes.box_rows() + of.filter_h - 1;
    return {of.filter_h * of.filter_w, of.filter_w, pitch,
            p.boxes.box_images() > 1 ? height * pitch : 8 * pitch, p.boxes.box_images() * height * pitch};
  }
  ROCM_SD_DEVICE int row(int phase, int row) const {
    const int pixel = Cfg::kHalo || p.boxed ? p.boxes.pixel(row) : row < image().pixels ? row : -1;
    if (pixel < 0) return -1;
    return layers() > 1 ? conv_phase_pixel(image(), pixel, phase / 2, phase % 2) : pixel;
  }
  ROCM_SD_DEVICE bool pdl_wait_weights() const { return p.pdl_wait_weights; }
  ROCM_SD_DEVICE const float* bias() const { return p.conv.epilogue.bias; }
  ROCM_SD_DEVICE TmaOutput<Cfg, kGated, true> output(int row, int other_row, int first_channel) const {
    return {p.conv.epilogue, {row, other_row}, first_channel};
  }
};

// workgroups: workgroups in the grid, whole clusters. lds: Cfg::kLdsBytes.
template <class Cfg>
ROCM_SD_DEVICE void conv_tma_body(const TmaConvParams<typename Cfg::T>& p, int group, int workgroups,
                                  char* lds) {
  tma_body<Cfg>(TmaConv<Cfg>{p}, p.multicast_size, p.splits, p.conv.split_steps, group, workgroups, lds);
}

}  // namespace rocm_sd
