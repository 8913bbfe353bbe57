// The output of a product whose weights came by permuted rows (MatrixBoxes::permuted): the matrix unit's
// layout then gives each lane, of every 32 channels, 8 consecutive ones of two rows, so that sums start from
// and end in global memory by 16 bytes a lane and no LDS. What the epilogue adds (bias, shift, residual) is
// where the sums begin, while the first tiles are on their way.
#pragma once

#include "composable_kernels/fused/epilogue.hpp"
#include "composable_kernels/hopper/tma_pipeline.hpp"

namespace rocm_sd {

// A lane's place in the tile of its consumer group.
template <class Cfg>
struct TmaPlace {
  static ROCM_SD_DEVICE int thread() { return Nvidia::thread() % Cfg::kConsumerGroupThreads; }
  // Rows row() and row() + 8, and 64 below in each further part; channels channel() .. channel() + 7 of
  // every 32.
  static ROCM_SD_DEVICE int row() { return thread() / 32 * 16 + Nvidia::lane() / 4; }
  static ROCM_SD_DEVICE int channel() { return Nvidia::lane() % 4 * 8; }
};

// Sums of 8 consecutive channels (TmaPlace) of 32: element i of row `half` in the two atoms.
template <class C>
ROCM_SD_DEVICE float& tma_element(C (&pair)[2], int half, int i) {
  return pair[i / 4].x[i / 2 % 2 * 4 + half * 2 + i % 2];
}

// Calls plain(at, v) or, gated or where `is_plain` is false, any(at, v, gate) for what this workgroup owns of
// a lane's sums: 8 channels of pair at / 2 and row at % 2, and gated their gates. Of what any() does there is
// one copy, with a choice of what it is for; not so of gates, where that would take longer than the work.
template <class Cfg, bool kGated, class Floats, class Plain, class Any>
ROCM_SD_DEVICE void tma_finish(Floats& acc, const TmaPipeline<Cfg>& pipeline, bool is_plain,
                               const Plain& plain, const Any& any) {
  constexpr int kPairs = Cfg::kAtomsN / 2, kOutputs = kGated ? kPairs / 2 : kPairs;
  const auto take = [&](Channels& v, int at) {
    ROCM_SD_UNROLL
    for (int e = 0; e < 8; ++e) v[e] = acc.atoms[0][at / 2 * 2 + e / 4].x[e / 2 % 2 * 4 + at % 2 * 2 + e % 2];
  };
  if (!kGated && is_plain) {
    ROCM_SD_UNROLL
    for (int at = 0; at < 2 * kOutputs; ++at)
      if (pipeline.owns(at / 2)) {
        Channels v;
        take(v, at);
        plain(at, v);
      }
    return;
  }
  if constexpr (kGated) {
    ROCM_SD_UNROLL
    for (int at = 0; at < 2 * kOutputs; ++at) {
      Channels v, gate;
      take(v, at);
      take(gate, at + 2 * (kPairs - kOutputs));
      any(at, v, gate);
    }
  } else {
    ROCM_SD_ROLLED
    for (int pass = 0; pass < 2 * kOutputs; ++pass) {
      if (!pipeline.owns(pass / 2)) continue;
      Channels v, gate;
      ROCM_SD_UNROLL
      for (int at = 0; at < 2 * kOutputs; ++at)
        if (at == pass) take(v, at);
      any(pass, v, gate);
    }
  }
}

// kGated: the first half of the tile's channels are values, the second their gates. kSlopes: whether there
// may be slopes.
template <class Cfg, bool kGated, bool kSlopes = false>
struct TmaOutput {
  using T = typename Cfg::T;
  using Sums = Accumulators<Nvidia, Cfg>;
  using Pair = typename AtomOf<Nvidia, T>::C[2];
  static constexpr int kPairs = Cfg::kAtomsN / 2, kOutputs = kGated ? kPairs / 2 : kPairs;
  static_assert(!kGated || kPairs % 2 == 0);

  const EpilogueParams<T>& p;
  int rows[2];        // of y, of this lane; -1: none
  int first_channel;  // of y, of the tile

  // Whether the residual is added in the end, for which its pieces wait in registers: their way from memory
  // would be longer than that of the first tiles.
  static constexpr bool kHolds = !kGated && Cfg::kParts == 1 && kPairs <= 5;
  // What begin() knows that finish() wants.
  struct Operands {
    uint4 residual[kHolds ? kPairs : 1][2];
  };

  // What the sums of the pairs that this workgroup owns begin with; the others' with zero. Loads come first,
  // so that all are under way together, or as many as there are registers for.
  ROCM_SD_DEVICE Operands begin(Sums& acc, const TmaPipeline<Cfg>& pipeline) const {
    const Operands operands = {};
    const ResidualRows from = residual_rows();
    constexpr int kBatch = Cfg::kParts > 1 && kPairs > 4 ? 3 : kPairs;
    ROCM_SD_UNROLL
    for (int first = 0; first < kPairs; first += kBatch) {
      const int last = first + kBatch < kPairs ? first + kBatch : kPairs;
      uint4 residual[kBatch][2] = {};
      if (!kGated && !kHolds && p.residual && !p.scale) {
        ROCM_SD_UNROLL
        for (int i = first; i < last; ++i) load_residual(residual[i - first], i, from, pipeline);
      }
      Channels bias[kBatch] = {};
      if (p.bias) {
        ROCM_SD_UNROLL
        for (int i = first; i < last; ++i) {
          const bool gate = kGated && i >= kOutputs;
          const int channel = channel_of(gate ? i - kOutputs : i);
          if (pipeline.owns(i) && channel < p.channels)
            load(bias[i - first], p.bias + (gate ? p.channels : 0) + channel, all_channels());
        }
      }
      ROCM_SD_UNROLL
      for (int i = first; i < last; ++i) ROCM_SD_UNROLL
      for (int half = 0; half < 2; ++half) ROCM_SD_UNROLL
      for (int e = 0; e < 8; ++e) tma_element(pair(acc, i), half, e) = bias[i - first][e];
      if (!kGated && !kHolds && p.residual && !p.scale) {
        ROCM_SD_UNROLL
        for (int i = first; i < last; ++i) ROCM_SD_UNROLL
        for (int half = 0; half < 2; ++half) add(acc, i, half, residual[i - first][half]);
      }
    }
    if (!kGated && p.shift) add_shift(acc, pipeline);
    return operands;
  }

  // The rest of what finish() wants, when the first tiles are there: before, it would be in their way.
  ROCM_SD_DEVICE void midway(Operands& operands, const TmaPipeline<Cfg>& pipeline) const {
    if constexpr (kHolds) {
      if (!p.residual || p.scale) return;
      const ResidualRows from = residual_rows();
      ROCM_SD_UNROLL
      for (int i = 0; i < kPairs; ++i) load_residual(operands.residual[i], i, from, pipeline);
    }
  }

  // Asks for the biases of begin(), for a tile that comes later.
  ROCM_SD_DEVICE void expect() const {
    if (p.bias) prefetch_channels(p.bias);
  }

  ROCM_SD_DEVICE void finish(Sums& acc, const TmaPipeline<Cfg>& pipeline, const Operands& operands) const {
    if (kHolds && p.residual && !p.scale) {
      ROCM_SD_UNROLL
      for (int i = 0; i < (kHolds ? kPairs : 0); ++i) ROCM_SD_UNROLL
      for (int half = 0; half < 2; ++half) add(acc, i, half, operands.residual[i][half]);
    }
    tma_finish<Cfg, kGated>(
        acc, pipeline, p.act == EpilogueActivation::kNone && !p.scale && !(kSlopes && p.slopes),
        [&](int at, Channels& v) { put(v, at); },
        [&](int at, Channels& v, const Channels& gate) {
          if (!kGated && p.scale) scale_row(v, at);
          if constexpr (kGated)
            map(v, [](float x, float g) { return x * gelu<Nvidia, T>(g); }, gate);
          else if (kSlopes && p.slopes)
            slope(v, at);
          else
            activate<Nvidia, T>(p.act, v);
          put(v, at);
        });
  }

 protected:
  static ROCM_SD_DEVICE Pair& pair(Sums& acc, int i) {
    return *reinterpret_cast<Pair*>(&acc.atoms[0][2 * i]);
  }
  // The tile's part of a table of all channels, gated with that of the gates.
  ROCM_SD_DEVICE void prefetch_channels(const float* table) const {
    const int thread = TmaPlace<Cfg>::thread(), channel = first_channel + 32 * (thread % kOutputs);
    if (thread >= kPairs || channel >= p.channels) return;
    Tma::prefetch_line(table + (thread < kOutputs ? 0 : p.channels) + channel);
  }
  ROCM_SD_DEVICE int channel_of(int pair) const {
    return first_channel + 32 * pair + TmaPlace<Cfg>::channel();
  }

 private:
  struct ResidualRows {
    const T* at[2];
  };
  ROCM_SD_DEVICE ResidualRows residual_rows() const {
    ResidualRows from;
    ROCM_SD_UNROLL
    for (int half = 0; half < 2; ++half)
      from.at[half] = p.residual + int64_t{rows[half]} * p.y_stride + channel_of(0);
    return from;
  }
  // Not into 8 elements, of which each would wait for its load at once.
  ROCM_SD_DEVICE void load_residual(uint4 (&to)[2], int i, const ResidualRows& from,
                                    const TmaPipeline<Cfg>& pipeline) const {
    ROCM_SD_UNROLL
    for (int half = 0; half < 2; ++half)
      if (pipeline.owns(i) && channel_of(i) < p.channels && rows[half] >= 0)
        to[half] = *reinterpret_cast<const uint4*>(from.at[half] + 32 * i);
  }
  static ROCM_SD_DEVICE void add(Sums& acc, int i, int half, uint4 residual) {
    const auto piece = __builtin_bit_cast(Vec8<T>, residual);
    ROCM_SD_UNROLL
    for (int e = 0; e < 8; ++e) tma_element(pair(acc, i), half, e) += to_float(piece.x[e]);
  }
  // at: as tma_finish() says.
  ROCM_SD_DEVICE void put(const Channels& v, int at) const {
    const int channel = channel_of(at / 2), row = at % 2 ? rows[1] : rows[0];
    if (row >= 0 && channel < p.channels) store(p.y + int64_t{row} * p.y_stride + channel, v, all_channels());
  }
  ROCM_SD_DEVICE void scale_row(Channels& v, int at) const {
    const int channel = channel_of(at / 2), row = at % 2 ? rows[1] : rows[0];
    if (row >= 0 && channel < p.channels) scale_and_add(p, row, channel, v, all_channels());
  }
  ROCM_SD_DEVICE void slope(Channels& v, int at) const {
    const int channel = channel_of(at / 2);
    if (channel < p.channels) apply_slopes(p, channel, v, all_channels());
  }
  ROCM_SD_DEVICE void add_shift(Sums& acc, const TmaPipeline<Cfg>& pipeline) const {
    const auto add = [&](const auto* table) {
      ROCM_SD_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (rows[half] < 0) continue;
        const auto* const of_image = table + rows[half] / p.rows_per_image * p.shift_stride;
        ROCM_SD_UNROLL
        for (int i = 0; i < kPairs; ++i) {
          if (!pipeline.owns(i) || channel_of(i) >= p.channels) continue;
          Channels term;
          load(term, of_image + channel_of(i), all_channels());
          ROCM_SD_UNROLL
          for (int e = 0; e < 8; ++e) tma_element(pair(acc, i), half, e) += term[e];
        }
      }
    };
    if (p.shift_is_float)
      add(static_cast<const float*>(p.shift));
    else
      add(static_cast<const T*>(p.shift));
  }
};

}  // namespace rocm_sd
