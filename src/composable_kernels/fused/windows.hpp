// Maps as windows and back, and channels as squares of pixels: what Swin transformers and sub-pixel
// convolutions move (Liu et al., "Swin Transformer", 2021, section 3.2; Shi et al., "Real-Time Single Image
// and Video Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural Network", 2016, section 3.2).
// Problem   rows of channels by a permutation that follows from the map's size; each body says its own
// Mapping   a wave takes a pixel, the grid's waves in turn; lanes own its channels
// Traffic   each element once
// Numerics  copies; one sum in float, rounded once
// Limits    none
#pragma once

#include "composable_kernels/block.hpp"

namespace rocm_sd {

inline constexpr int kWindowWaves = 4;  // of a workgroup: pixels at a time

// A map of height x width, multiples of side, in windows of side x side after it was rolled up and left by
// shift. Where it was, windows of four kinds follow each other: those of neighbours alone, those at the right
// edge, those at the lower one, and that of the corner, which hold pixels of both borders; within a kind, and
// without a shift, they stand in raster order.
struct WindowGrid {
  int64_t height = 0, width = 0, side = 1, shift = 0;

  ROCM_SD_DEVICE int64_t down() const { return height / side; }
  ROCM_SD_DEVICE int64_t across() const { return width / side; }
  ROCM_SD_DEVICE int64_t pixels() const { return height * width; }
  ROCM_SD_DEVICE int64_t windows() const { return down() * across(); }
  // Windows of the kind: 0 inner ones, 1 right, 2 lower edge, 3 the corner. Without a shift all are of kind
  // 0.
  ROCM_SD_DEVICE int64_t windows_of(int kind) const {
    if (shift == 0) return kind == 0 ? windows() : 0;
    return (kind & 2 ? 1 : down() - 1) * (kind & 1 ? 1 : across() - 1);
  }
  // Of the window in a row and a column of windows.
  ROCM_SD_DEVICE int64_t number(int64_t row, int64_t column) const {
    if (shift == 0) return row * across() + column;
    const int64_t inner = (down() - 1) * (across() - 1);
    if (row + 1 < down()) return column + 1 < across() ? row * (across() - 1) + column : inner + row;
    return inner + down() - 1 + column;
  }
  // Where a pixel's row goes: windows in their order, each in raster order.
  ROCM_SD_DEVICE int64_t place(int64_t pixel) const {
    int64_t y = pixel / width - shift, x = pixel % width - shift;
    y += y < 0 ? height : 0;
    x += x < 0 ? width : 0;
    return (number(y / side, x / side) * side + y % side) * side + x % side;
  }
};

// y[place(i)] = x[i].
template <class T>
struct WindowPartitionParams {
  const T* x;  // [grid.pixels(), channels]
  T* y;        // as x
  int64_t channels;
  WindowGrid grid;
  uint32_t workgroups;  // of the launch
};

template <class Arch, class T>
ROCM_SD_DEVICE void window_partition_body(const WindowPartitionParams<T>& p, const Block<Arch>& block) {
  for (int64_t i = block.first_row(); i < p.grid.pixels(); i += block.row_stride()) {
    const T* x = p.x + i * p.channels;
    T* y = p.y + p.grid.place(i) * p.channels;
    for (int64_t c = block.lane(); c < p.channels; c += Arch::lanes) y[c] = x[c];
  }
}

// y[i] = residual[i] + x[place(i)].
template <class T>
struct WindowReverseParams {
  const T *x, *residual;  // [grid.pixels(), channels]
  T* y;                   // as x
  int64_t channels;
  WindowGrid grid;
  uint32_t workgroups;
};

template <class Arch, class T>
ROCM_SD_DEVICE void window_reverse_body(const WindowReverseParams<T>& p, const Block<Arch>& block) {
  for (int64_t i = block.first_row(); i < p.grid.pixels(); i += block.row_stride()) {
    const T *x = p.x + p.grid.place(i) * p.channels, *residual = p.residual + i * p.channels;
    T* y = p.y + i * p.channels;
    for (int64_t c = block.lane(); c < p.channels; c += Arch::lanes)
      store(y[c], to_float(residual[c]) + to_float(x[c]));
  }
}

// y[v, u, c] = x[v / side, u / side, (c * side + v % side) * side + u % side].
template <class T>
struct PixelShuffleParams {
  const T* x;  // [height, width, channels * side^2]
  T* y;        // [height * side, width * side, channels]
  int64_t height, width, side, channels;
  uint32_t workgroups;
};

template <class Arch, class T>
ROCM_SD_DEVICE void pixel_shuffle_body(const PixelShuffleParams<T>& p, const Block<Arch>& block) {
  const int64_t pixels = p.height * p.width * p.side * p.side, across = p.width * p.side;
  for (int64_t i = block.first_row(); i < pixels; i += block.row_stride()) {
    const int64_t v = i / across, u = i % across;
    const T* x = p.x + (v / p.side * p.width + u / p.side) * p.channels * p.side * p.side +
                 v % p.side * p.side + u % p.side;
    for (int64_t c = block.lane(); c < p.channels; c += Arch::lanes)
      p.y[i * p.channels + c] = x[c * p.side * p.side];
  }
}

}  // namespace rocm_sd
