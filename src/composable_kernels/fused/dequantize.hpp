// Weights stored in 8 bits as the types that products take.
// Problem   to[row, k] = from[row, k] * scales[row]; the four filters of a doubled image likewise; filters in
//           8 bits as the convolution's gather walks them
// Mapping   a thread takes 16 neighbouring elements, the grid's threads in turn; phases: 8; layouts: one
// Traffic   from once, to once; the product that follows finds `to` in the last cache
// Numerics  a product in float, rounded once
// Limits    fewer than 2^31 elements
#pragma once

#include "composable_kernels/block.hpp"
#include "composable_kernels/eight_bit.hpp"
#include "composable_kernels/fused/conv_layout.hpp"
#include "composable_kernels/pack.hpp"
#include "composable_kernels/tile/divide.hpp"
#include "composable_kernels/tile/unrolled.hpp"

namespace rocm_sd {

template <class FromType, class ToType>
struct DequantizeParams {
  const FromType* from;  // [elements / depth, depth], aligned to 16 bytes
  const float* scales;   // [elements / depth]
  ToType* to;            // as from
  FastDivide by_depth;
  int32_t elements;
  uint32_t workgroups;  // of the grid
};

constexpr int kDequantizePack = 16;

template <class Arch, class From, class To>
ROCM_SD_DEVICE void dequantize_body(const DequantizeParams<From, To>& p, const Block<Arch>& block) {
  const int depth = p.by_depth.divisor, rows = p.by_depth.quotient(p.elements);
  const int64_t packs = (static_cast<int64_t>(p.elements) + kDequantizePack - 1) / kDequantizePack;
  for (int64_t item = block.first_item(); item < packs; item += block.item_stride()) {
    const auto first = static_cast<int32_t>(item * kDequantizePack);
    int row = p.by_depth.quotient(first), column = first - row * depth;
    float scale = p.scales[row];
    if (p.elements - first < kDequantizePack) {
      for (int i = first; i < p.elements; ++i)
        store(p.to[i], to_float(p.from[i]) * p.scales[p.by_depth.quotient(i)]);
      continue;
    }
    const auto pack = load_pack<kDequantizePack>(p.from + first);
    float values[kDequantizePack];
    const bool one_row = column + kDequantizePack <= depth;
    unrolled<kDequantizePack>([&](int i) {
      if (!one_row && column == depth) {
        column = 0;
        row += row + 1 < rows ? 1 : 0;
        scale = p.scales[row];
      }
      ++column;
      values[i] = to_float(pack.x[i]) * scale;
    });
    constexpr int kHalf = kDequantizePack / 2;
    unrolled<2>([&](int half) {
      Pack<To, kHalf> out;
      unrolled<kHalf>([&](int i) { store(out.x[i], values[half * kHalf + i]); });
      store_pack(p.to + first + half * kHalf, out);
    });
  }
}

// A filter in 8 bits as conv_layout.hpp packs one; the layout is that of the type that it is dequantized to.
// index: of an element of the packed filter; beyond the last, nothing happens.
ROCM_SD_DEVICE void pack_bytes_body(const FilterParams<uint8_t>& p, int64_t index) {
  const FilterLayout& l = p.layout;
  if (index >= l.outputs * l.depth()) return;
  const int64_t output = index / l.depth(), of_first = static_cast<int64_t>(l.taps) * l.padded[0];
  int64_t k = index - output * l.depth();
  const bool second = k >= of_first;
  if (second) k -= of_first;
  int64_t tap, c;
  l.unpacked_at(second ? 1 : 0, k, l.taps, tap, c);
  const bool inside = c < (second ? l.channels[1] : l.channels[0]);
  if (second) c += l.channels[0];
  p.to[index] = inside ? p.from[output * l.plain_depth() + c * l.taps + tap] : 0;
}

template <class FromType, class ToType>
struct DequantizePhasesParams {
  FilterLayout layout;   // of the packed 3x3 filter in 8 bits; one input
  const FromType* from;  // [outputs, layout.depth()]
  const float* scales;   // [outputs]
  ToType* to;            // [4, outputs, 4 padded channels]
};

// The four 2x2 filters of conv_phases_body, from the packed 3x3 filter. index: of 8 elements of `to`.
template <class From, class To>
ROCM_SD_DEVICE void dequantize_phases_body(const DequantizePhasesParams<From, To>& p, int64_t index) {
  constexpr int kChunk = 16 / static_cast<int>(sizeof(To));  // channels of a block are multiples of it
  const FilterLayout& l = p.layout;
  const int64_t first = index * kChunk, depth = int64_t{4} * l.padded[0];
  if (first >= 4 * l.outputs * depth) return;
  const int64_t row = first / depth, phase = row / l.outputs, output = row - phase * l.outputs;
  int64_t tap, c;
  l.unpacked_at(0, first - row * depth, 4, tap, c);
  float sums[kChunk] = {};
  for (int t = 0; t < 9; ++t) {
    const int64_t at = (t / 3 + 1 - phase / 2) / 2 * 2 + (t % 3 + 1 - phase % 2) / 2;
    if (at != tap) continue;
    const From* from = p.from + output * l.depth() + l.packed_at(0, t, c, 9);
    ROCM_SD_UNROLL
    for (int i = 0; i < kChunk; ++i) sums[i] += to_float(from[i]);
  }
  Pack<To, kChunk> out;
  ROCM_SD_UNROLL
  for (int i = 0; i < kChunk; ++i) store(out.x[i], sums[i] * p.scales[output]);
  store_pack(p.to + first, out);
}

}  // namespace rocm_sd
