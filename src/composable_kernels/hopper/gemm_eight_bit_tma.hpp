// GEMM of 8-bit operands on Hopper with tiles fetched by TMA.
// Problem   as fused/gemm_eight_bit.hpp, without partial sums in memory
// Mapping   hopper/tma_body.hpp; the maps are those of half as many elements of 16 bits
// Traffic   hopper/tma_body.hpp; scales, biases and residuals after the products
// Numerics  as fused/gemm_eight_bit.hpp; e4m3 is summed by Hopper's matrix unit, whose sums within a step
//           keep fewer bits than a float; parts of k are summed as floats
// Limits    depth in multiples of 16; channels (gated: of the output) in whole blocks of 32; no shift
#pragma once

#include "composable_kernels/arch/eight_bit_hopper.hpp"
#include "composable_kernels/fused/gemm_eight_bit.hpp"
#include "composable_kernels/hopper/tma_body.hpp"

namespace rocm_sd {

// The output of a tile: sums are scaled, then finished as the epilogue says. Its places are those of
// TmaOutput.
template <class Cfg, bool kGated, class T>
struct TmaScaledOutput {
  static constexpr int kPairs = Cfg::kAtomsN / 2, kOutputs = kGated ? kPairs / 2 : kPairs;
  static_assert(!kGated || kPairs % 2 == 0);

  const EightBitGemmParams<typename Cfg::T, T>& p;
  int rows[2];        // of y, of this lane; -1: none
  int first_channel;  // of y, of the tile

  struct Operands {};  // what begin() knows that finish() wants
  static constexpr bool kHolds = false;

  ROCM_SD_DEVICE Operands begin(Accumulators<Nvidia, Cfg>& acc, const TmaPipeline<Cfg>&) const {
    acc = {};
    return {};
  }
  // Asks for the scales and biases, for a tile that comes later.
  ROCM_SD_DEVICE void expect() const {
    const int thread = TmaPlace<Cfg>::thread(), channel = first_channel + 32 * (thread % kOutputs);
    if (thread >= kPairs || channel >= p.epilogue.channels) return;
    const int at = (thread < kOutputs ? 0 : p.epilogue.channels) + channel;
    Tma::prefetch_line(p.w_scales + at);
    if (p.epilogue.bias) Tma::prefetch_line(p.epilogue.bias + at);
  }
  ROCM_SD_DEVICE void midway(Operands&, const TmaPipeline<Cfg>&) const {}
  template <class Floats>
  ROCM_SD_DEVICE void finish(Floats& acc, const TmaPipeline<Cfg>& pipeline, const Operands&) const {
    const auto row_scale = [&](int at) { return row_of(at) >= 0 ? p.x_scales[row_of(at)] : 0.0f; };
    const float scales[2] = {row_scale(0), row_scale(1)};
    const auto scale_of = [&](int at) { return at % 2 ? scales[1] : scales[0]; };
    tma_finish<Cfg, kGated>(
        acc, pipeline, p.epilogue.act == EpilogueActivation::kNone,
        [&](int at, Channels& v) {
          if (scale_and_bias(v, at, scale_of(at), 0)) put(v, at);
        },
        [&](int at, Channels& v, Channels& gate) {
          if (!scale_and_bias(v, at, scale_of(at), 0)) return;
          if constexpr (kGated) {
            scale_and_bias(gate, at, scale_of(at), p.epilogue.channels);
            map(v, [](float x, float g) { return x * gelu<Nvidia, T>(g); }, gate);
          }
          put(v, at);
        });
  }

 private:
  ROCM_SD_DEVICE int channel_of(int pair) const {
    return first_channel + 32 * pair + TmaPlace<Cfg>::channel();
  }
  ROCM_SD_DEVICE int row_of(int at) const { return at % 2 ? rows[1] : rows[0]; }
  // Scales and biases; further: where the gates' follow. False where there is no such output.
  ROCM_SD_DEVICE bool scale_and_bias(Channels& v, int at, float row_scale, int further) const {
    const int channel = channel_of(at / 2);
    if (row_of(at) < 0 || channel >= p.epilogue.channels) return false;
    Channels scales;
    load(scales, p.w_scales + further + channel, all_channels());
    scale(v, row_scale, scales);
    if (p.epilogue.bias) add_all(v, p.epilogue.bias + further + channel);
    return true;
  }
  template <class From>
  static ROCM_SD_DEVICE void add_all(Channels& v, const From* from) {
    Channels term;
    load(term, from, all_channels());
    add(v, term);
  }
  // Residual, activation, and to memory.
  ROCM_SD_DEVICE void put(Channels& v, int at) const {
    const int64_t place = int64_t{row_of(at)} * p.epilogue.y_stride + channel_of(at / 2);
    if constexpr (kMayWiden<T> && !kGated) {
      if (p.epilogue.float_result) {
        if (p.epilogue.residual) add_all(v, reinterpret_cast<const float*>(p.epilogue.residual) + place);
        activate<Nvidia, T>(p.epilogue.act, v);
        return store(reinterpret_cast<float*>(p.epilogue.y) + place, v, all_channels());
      }
    }
    if constexpr (!kGated) {
      if (p.epilogue.residual) add_all(v, p.epilogue.residual + place);
      activate<Nvidia, T>(p.epilogue.act, v);
    }
    store(p.epilogue.y + place, v, all_channels());
  }
};

template <class Cfg, bool kIsGated, class ToType>
struct TmaEightBitGemm {
  static constexpr bool kGated = kIsGated;
  const TmaEightBitParams<typename Cfg::T, ToType>& p;

  ROCM_SD_DEVICE int rows() const { return p.gemm.epilogue.rows; }
  ROCM_SD_DEVICE int columns() const { return (kGated ? 2 : 1) * p.gemm.epilogue.channels; }
  ROCM_SD_DEVICE int steps() const { return (p.gemm.depth / 2 + Cfg::kBlockK - 1) / Cfg::kBlockK; }
  ROCM_SD_DEVICE int layers() const { return 1; }
  ROCM_SD_DEVICE const TensorMap& weights() const { return p.w; }
  ROCM_SD_DEVICE bool pdl_wait_weights() const { return false; }
  ROCM_SD_DEVICE const float* bias() const { return p.gemm.epilogue.bias; }
  ROCM_SD_DEVICE void prefetch_maps() const {
    Tma::prefetch(p.w);
    Tma::prefetch(p.x);
  }
  ROCM_SD_DEVICE int weight_row(int, int column) const { return column; }
  ROCM_SD_DEVICE TmaMatrixRows rows_of(int, int first_row, int step) const {
    return {p.x, first_row, step * Cfg::kBlockK};
  }
  ROCM_SD_DEVICE int row(int, int row) const { return row < rows() ? row : -1; }
  ROCM_SD_DEVICE TmaScaledOutput<Cfg, kGated, ToType> output(int row, int other_row,
                                                             int first_channel) const {
    return {p.gemm, {row, other_row}, first_channel};
  }
};

// workgroups: workgroups in the grid, whole clusters. lds: Cfg::kLdsBytes. Cfg::T is the 8-bit type.
template <class Cfg, bool kGated, class T>
ROCM_SD_DEVICE void eight_bit_tma_body(const TmaEightBitParams<typename Cfg::T, T>& p, int group,
                                       int workgroups, char* lds) {
  tma_body<Cfg>(TmaEightBitGemm<Cfg, kGated, T>{p}, p.multicast_size, p.gemm.splits, p.gemm.split_steps,
                group, workgroups, lds);
}

}  // namespace rocm_sd
