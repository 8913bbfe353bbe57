// GEMM of 8-bit operands: a linear layer whose weight is stored in 8 bits and whose activations are quantised
// for it, a row at a time.
// Problem   y[m, n] = epilogue(x_scales[m] w_scales[n] * sum over k of x[m, k] w[n, k]), its gated form, or
//           the scaled partial sums over a part of k; x[m, k] = round(from[m, k] / x_scales[m])
// Mapping   as fused/gemm.hpp; quantising: a wave per row, the grid's waves in turn
// Traffic   as fused/gemm.hpp, with half its bytes; quantising: from twice (from cache the second time)
// Numerics  products of integers exact in 32 bits, of e4m3 in the matrix unit's float; scales in float
// Limits    depth and strides are multiples of 16, operands aligned to 16 bytes; depth below 2^16
#pragma once

#include "composable_kernels/arch/eight_bit_atom.hpp"
#include "composable_kernels/block.hpp"
#include "composable_kernels/fused/gemm.hpp"
#include "composable_kernels/pack.hpp"

namespace rocm_sd {

template <class EightBit, class T>
struct EightBitGemmParams {
  const EightBit *x, *w;  // [rows, depth], [columns, depth], dense; gated: values first
  const float *x_scales, *w_scales;
  float* partials;             // null, or [splits][rows][columns]: then epilogue is left to the reduction
  EpilogueParams<T> epilogue;  // epilogue.rows rows; epilogue.channels columns (gated: half of w's)
  int depth;
  int splits, split_steps;  // parts of k, and steps of kBlockK in each
  GroupOrder order;         // of tiles and parts
};

// With the maps by which hopper/gemm_eight_bit_tma.hpp fetches x and w.
template <class EightBit, class T>
struct TmaEightBitParams {
  TensorMap x, w;
  EightBitGemmParams<EightBit, T> gemm;  // splits: within a cluster, without partials
  int multicast_size;                    // of a tile of w, in a cluster
};

// The finishes of fused/epilogue.hpp with scales before them. kGated: GatedFinish, else EpilogueFinish.
template <class Arch, class EightBit, class T, bool kGated>
struct ScaledFinish {
  using Finish = std::conditional_t<kGated, GatedFinish<Arch, T>, EpilogueFinish<Arch, T>>;
  const EightBitGemmParams<EightBit, T>& p;
  int first_row, first_channel;

  struct Operands {
    typename Finish::Operands epilogue;
    float row_scale;
    Channels scales, gate_scales;
  };

  ROCM_SD_DEVICE Operands operands(int row, int channel) const {
    Operands e{};
    e.epilogue = Finish{p.epilogue, first_row, first_channel}.operands(row, channel);
    const int at = first_channel + channel, count = p.epilogue.channels - at;
    if (first_row + row >= p.epilogue.rows || count <= 0) return e;
    const ChannelSpan span{count, epilogue_is_wide(p.epilogue, at)};
    e.row_scale = p.x_scales[first_row + row];
    load(e.scales, p.w_scales + at, span);
    if constexpr (kGated) load(e.gate_scales, p.w_scales + p.epilogue.channels + at, span);
    return e;
  }
  ROCM_SD_DEVICE void operator()(int row, int channel, Channels& v, const Operands& e) const {
    scale(v, e.row_scale, e.scales);
    Finish{p.epilogue, first_row, first_channel}(row, channel, v, e.epilogue);
  }
  ROCM_SD_DEVICE void operator()(int row, int channel, Channels& v, Channels& gate, const Operands& e) const {
    scale(v, e.row_scale, e.scales);
    scale(gate, e.row_scale, e.gate_scales);
    Finish{p.epilogue, first_row, first_channel}(row, channel, v, gate, e.epilogue);
  }

  // As those of GatedFinish.
  template <int kCount>
  struct GateTerms {
    typename Finish::template GateTerms<kCount> epilogue;
    float scale[kCount], gate_scale[kCount];
  };
  template <int kCount, class Row>
  ROCM_SD_DEVICE GateTerms<kCount> gate_terms(int channel, const Row& row) const {
    const Finish finish{p.epilogue, first_row, first_channel};
    GateTerms<kCount> out{finish.template gate_terms<kCount>(channel, row), {}, {}};
    load_pairs(out.scale, out.gate_scale, p.w_scales, p.epilogue.channels, first_channel + channel, row);
    return out;
  }
  template <class Sum, int kCount>
  ROCM_SD_DEVICE float gate(Sum value, Sum gate, const GateTerms<kCount>& terms, int i, int row) const {
    const Finish finish{p.epilogue, first_row, first_channel};
    row += first_row;
    const float scale = row < p.epilogue.rows ? p.x_scales[row] : 0.0f;
    return finish.gate(static_cast<float>(value) * (scale * terms.scale[i]),
                       static_cast<float>(gate) * (scale * terms.gate_scale[i]), terms.epilogue, i, row);
  }
  ROCM_SD_DEVICE auto stored() const { return Finish{p.epilogue, first_row, first_channel}.stored(); }
};

// index: of the tile; split: part of k. lds: Cfg::kLdsBytes. Cfg::T is EightBit.
template <class Arch, class Cfg, bool kGated, class T>
ROCM_SD_DEVICE void eight_bit_gemm_body(const EightBitGemmParams<typename Cfg::T, T>& p, int index, int split,
                                        char* lds) {
  using EightBit = typename Cfg::T;
  const int rows = p.epilogue.rows, columns = kGated ? 2 * p.epilogue.channels : p.epilogue.channels;
  const OutputTile tile = output_tile<Cfg>(index, rows, columns);
  const GemmOperands<EightBit> operands{p.x, p.w, p.depth, p.depth, rows, columns, p.depth};
  Accumulators<Arch, Cfg> acc{};
  gemm_tile<PipelineOf<Arch>, kGated, Arch, Cfg>(acc, lds, operands, tile,
                                                 steps_of_split<Cfg>(p.depth, split, p.split_steps));

  if constexpr (!kGated) {
    if (p.partials) {
      float* const partial = p.partials + static_cast<int64_t>(split) * rows * columns;
      finish_tile<Arch, Cfg, false>(acc, lds, [&](int row, int channel, Channels& v) {
        const int m = tile.row + row, n = tile.column + channel;
        if (m >= rows || n >= columns) return;
        Channels scales;
        load(scales, p.w_scales + n, {columns - n, n + 8 <= columns && columns % 8 == 0});
        scale(v, p.x_scales[m], scales);
        store_partial(partial, rows, columns, m, n, v);
      });
      return;
    }
  }
  finish_tile<Arch, Cfg, kGated>(
      acc, lds, ScaledFinish<Arch, EightBit, T, kGated>{p, tile.row, kGated ? tile.column / 2 : tile.column});
}

template <class EightBit, class FromType>
struct QuantiseParams {
  const FromType* from;  // [rows, depth], rows `stride` elements apart
  EightBit* to;          // [rows, depth], dense
  float* scales;         // [rows]
  int64_t stride;
  float factor;  // of the scales: what a product of two elements must be multiplied by on this device
  int rows, depth;
  uint32_t workgroups;  // of the grid
};

// A row that is not finite gets a scale that is not a number. Depth and stride: multiples of 8 elements.
template <class Arch, class EightBit, class From>
ROCM_SD_DEVICE void quantise_body(const QuantiseParams<EightBit, From>& p, const Block<Arch>& block) {
  constexpr int kVec = 8;
  constexpr float kMax = kEightBitMost<EightBit>;
  for (int64_t row = block.first_row(); row < p.rows; row += block.row_stride()) {
    const From* from = p.from + row * p.stride;
    float most = 0, poison = 0;
    for (int k = block.lane() * kVec; k < p.depth; k += Arch::lanes * kVec) {
      const auto pack = load_pack<kVec>(from + k);
      for_each_element(pack, [&](From x) {
        const float value = to_float(x);
        most = Arch::max(most, value < 0 ? -value : value);
        poison += value * 0.0f;
      });
    }
    most = Arch::wave_max(most);
    poison = Arch::wave_sum(poison);
    const float inverse = poison == 0 && most > kEightBitLeast ? kMax / most : 0.0f;
    if (block.lane() == 0) p.scales[row] = (most / kMax + poison) * p.factor;
    for (int k = block.lane() * kVec; k < p.depth; k += Arch::lanes * kVec) {
      const auto pack = load_pack<kVec>(from + k);
      Pack<EightBit, kVec> to;
      for_each_element(
          to,
          [&](EightBit& y, From x) {
            const float value = to_float(x) * inverse;
            store(y, value == value ? value : 0.0f);
          },
          pack);
      store_pack(p.to + row * p.depth + k, to);
    }
  }
}

}  // namespace rocm_sd
