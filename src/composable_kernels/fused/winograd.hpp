// Convolution with a 3x3 filter and stride 1 by Winograd's minimal filtering F(2x2, 3x3): 16 multiplications
// for four outputs in place of 36 (Winograd, "Arithmetic Complexity of Computations", 1980; Lavin and Gray,
// "Fast Algorithms for Convolutional Neural Networks", arXiv 1509.09308, 2015: the matrices are theirs).
// Problem   y[tile] = epilogue(A^T [sum over c of (G w[n, c] G^T) * (B^T x[tile, c] B)] A) of NHWC images;
//           the 16 elements of the product are planes
// Mapping   a workgroup per tiles x channels of y; its threads transform the windows of a step of channels
//           into LDS; a wave multiplies whole planes; planes meet in LDS, 16 tiles at a time, and a thread
//           makes two pixels of 8 channels of them
// Traffic   each window once per 64 channels of y, transformed in registers; filters, transformed when they
//           are loaded, go around LDS, for no two waves share any
// Numerics  windows are transformed in f16, a quarter of the sums, so that none overflows; filters in float,
//           rounded once; float accumulators, k ascending; error: 2.2 to 3 times that of the direct product
// Limits    f16; channels a multiple of 8; an image with what its padding adds below 2^31 bytes; filters
//           below 29000
#pragma once

#include "composable_kernels/fused/epilogue.hpp"
#include "composable_kernels/fused/main_loop.hpp"
#include "composable_kernels/pack.hpp"
#include "composable_kernels/tile/group_order.hpp"
#include "composable_kernels/tile/winograd_sums.hpp"

namespace rocm_sd {

struct WinogradParams {
  WinogradImage image;
  WinogradFilter filter;
  EpilogueParams<Half> epilogue;  // rows: pixels; channels: outputs
  int32_t steps;                  // of kWinogradDepth channels
  GroupOrder order;
};

// Two neighbouring pixels of a row of the output, 8 channels: from the staged sums of tile `tile` of 16, row
// `down` of its two.
template <class Arch>
ROCM_SD_DEVICE void winograd_finish(const WinogradParams& p, const float* lds, WinogradPlace place, int tile,
                                    int down, int piece, int first_channel) {
  const int y = 2 * place.row + down, x = 2 * place.column;
  if (y >= p.image.out_height) return;
  // A^T: (1, 1, 1, 0) and (0, 1, -1, -1).
  const float sign = down ? -4.0f : 4.0f;  // sums are of a quarter
  Channels left, right;
  fill(left, 0.0f);
  fill(right, 0.0f);
  unrolled<4>([&](int j) {
    Channels column;
    fill(column, 0.0f);
    WinogradStage<Arch>::add(column, 4.0f, lds, down * 4 + j, tile, piece);
    WinogradStage<Arch>::add(column, sign, lds, (down + 1) * 4 + j, tile, piece);
    WinogradStage<Arch>::add(column, sign, lds, (down + 2) * 4 + j, tile, piece);
    if (j < 3) add(left, column);
    if (j > 0) map(right, [&](float a, float b) { return j == 1 ? a + b : a - b; }, column);
  });
  const EpilogueFinish<Arch, Half, true> finish{p.epilogue, 0, first_channel};
  const int pixel = (place.image * p.image.out_height + y) * p.image.out_width + x;
  rolled(x + 1 < p.image.out_width ? 2 : 1, [&](int beside) {
    const auto operands = finish.operands(pixel + beside, piece * 8);
    finish(pixel + beside, piece * 8, left, operands);
    copy(left, right);
  });
}

// index: of the workgroup's tile of tiles x channels. lds: Cfg::kLdsBytes, aligned to 16. for_epilogue(): p
// again, asked for after the products.
template <class Arch, class Cfg, class ForEpilogue>
ROCM_SD_DEVICE void winograd_body(const WinogradParams& p, int index, char* lds,
                                  const ForEpilogue& for_epilogue) {
  const TilePlace tile = tile_place(index, (p.image.tiles + Cfg::kTiles - 1) / Cfg::kTiles,
                                    p.filter.output_blocks * 16 / Cfg::kChannels);
  const int first_tile = tile.m * Cfg::kTiles, first_channel = tile.n * Cfg::kChannels;
  auto* const planes = reinterpret_cast<Half*>(lds);
  WinogradWindows<Arch, Cfg> windows(p.image, first_tile);
  windows.load(0);
  WinogradWeights<Arch, Cfg> weights(p.filter, first_channel / 16);
  WinogradSums<Arch, Cfg> sums{};
  for (int step = 0; step < p.steps; ++step) {
    const int k = step * kWinogradDepth, next = step + 1 < p.steps ? k + kWinogradDepth : k;
    Arch::barrier();  // the last step's readers
    windows.store(planes);
    Arch::barrier();
    if (next != k) windows.load(next);
    winograd_multiply<Arch, Cfg>(sums, weights, planes, k, next);
  }

  const WinogradParams& again = for_epilogue();
  auto* const staged = reinterpret_cast<float*>(lds);
  rolled(Cfg::kStages, [&](int stage) {
    Arch::barrier();
    winograd_stage<Arch, Cfg>(staged, sums, stage);
    Arch::barrier();
    constexpr int kParts = Cfg::kChannels / Cfg::kStageChannels, kPieces = Cfg::kStageChannels / 8;
    const int channel = first_channel + stage % kParts * Cfg::kStageChannels;
    // Nothing of an item is worked out ahead of the loop: it would lie in registers beside the sums.
    const int first_item = Arch::thread() + Arch::opaque(stage) - stage;
    for (int item = first_item; item < 16 * kPieces * 2; item += Cfg::kWaves * Arch::lanes) {
      // Of eight lanes four take tiles 4 further (WinogradStage).
      const int of_tile = item / kPieces % 2 * 4 + item / (2 * kPieces) % 4 + item / (8 * kPieces) % 2 * 8;
      const int at = first_tile + stage / kParts * 16 + of_tile;
      if (at < again.image.tiles)
        winograd_finish<Arch>(again, staged, winograd_place(again.image, at), of_tile, item / (16 * kPieces),
                              item % kPieces, channel);
    }
  });
}

struct WinogradFilterParams {
  const Half* from;           // [outputs, channels, 3, 3]
  Half* to;                   // as WinogradFilter says
  int32_t outputs, channels;  // of `from`
  int32_t output_blocks, eighths;
};

// G w G^T of 8 channels of an output, in float, rounded once. index: of output * eighths + eighth, of the
// padded filter.
ROCM_SD_DEVICE void winograd_filter_body(const WinogradFilterParams& p, int64_t index) {
  const int64_t output = index / p.eighths;
  const int eighth = static_cast<int>(index - output * p.eighths);
  if (output >= int64_t{p.output_blocks} * 16) return;
  Pack<Half, 8> planes[kWinogradPlanes];
  for (int e = 0; e < 8; ++e) {
    const int channel = eighth * 8 + e;
    const bool there = output < p.outputs && channel < p.channels;
    const Half* const w = p.from + (there ? output * p.channels + channel : 0) * 9;
    // (w0, (w0 + w1 + w2) / 2, (w0 - w1 + w2) / 2, w2)
    const auto part = [](int i, float w0, float w1, float w2) {
      if (i == 0) return w0;
      if (i == 3) return w2;
      return 0.5f * (w0 + w2 + (i == 1 ? w1 : -w1));
    };
    for (int i = 0; i < 4; ++i) {
      float column[3];
      for (int s = 0; s < 3; ++s) column[s] = part(i, to_float(w[s]), to_float(w[3 + s]), to_float(w[6 + s]));
      for (int j = 0; j < 4; ++j)
        store(planes[4 * i + j].x[e], there ? part(j, column[0], column[1], column[2]) : 0.0f);
    }
  }
  for (int plane = 0; plane < kWinogradPlanes; ++plane)
    store_pack(
        p.to + ((static_cast<int64_t>(plane) * p.output_blocks + output / 16) * p.eighths + eighth) * 128 +
            output % 16 * 8,
        planes[plane]);
}

}  // namespace rocm_sd
