// The output of a product whose weights came by dealt rows (MatrixBoxes::dealt): the matrix unit's layout
// then gives each lane, of every 32 channels, 8 consecutive ones of two rows, so that sums start from and end
// in global memory by 16 bytes a lane and no LDS. What the tail adds (bias, shift, residual) is where the
// sums begin, while the first tiles are on their way.
#pragma once

#include "composable_kernels/fused/epilogue.hpp"
#include "composable_kernels/tile/bulk_product.hpp"

namespace rocm_sd {

// A lane's place in the tile of a workgroup.
struct BulkPlace {
  // Rows row() and row() + 8; channels channel() .. channel() + 7 of every 32.
  static ROCM_SD_DEVICE int row() { return Nvidia::thread() / 32 * 16 + Nvidia::lane() / 4; }
  static ROCM_SD_DEVICE int channel() { return Nvidia::lane() % 4 * 8; }
};

// Sums of 8 consecutive channels (BulkPlace) of 32: element i of row `half` in the two atoms.
template <class C>
ROCM_SD_DEVICE float& bulk_element(C (&pair)[2][1], int half, int i) {
  return pair[i / 4][0].x[i / 2 % 2 * 4 + half * 2 + i % 2];
}

// kGated: the first half of the tile's channels are values, the second their gates.
template <class Cfg, bool kGated>
struct BulkOutput {
  using T = typename Cfg::T;
  using Sums = Accumulators<Nvidia, Cfg>;
  using Pair = typename AtomOf<Nvidia, T>::C[2][1];
  static constexpr int kPairs = Cfg::kAtomsN / 2, kOutputs = kGated ? kPairs / 2 : kPairs;
  static_assert(!kGated || kPairs % 2 == 0);

  const TailParams<T>& p;
  int rows[2];        // of y, of this lane; -1: none
  int first_channel;  // of y, of the tile

  // What the sums of the pairs that this workgroup owns begin with; the others' with zero.
  ROCM_SD_DEVICE void begin(Sums& acc, const BulkPipeline<Cfg>& pipeline) const {
    ROCM_SD_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      Pair& sums = pair(acc, i);
      const bool gate = kGated && i >= kOutputs;
      const int channel = channel_of(gate ? i - kOutputs : i);
      const bool any = pipeline.owns(i) && channel < p.channels;
      float base[8] = {};
      if (any && p.bias) load8(base, p.bias + (gate ? p.channels : 0) + channel, true, 8);
      ROCM_SD_UNROLL
      for (int half = 0; half < 2; ++half) {
        float v[8];
        ROCM_SD_UNROLL
        for (int e = 0; e < 8; ++e) v[e] = base[e];
        if (!kGated && any && rows[half] >= 0) {
          if (p.shift) add_shift(v, rows[half], channel);
          if (p.residual) {
            const auto piece =
                *reinterpret_cast<const Vec8<T>*>(p.residual + int64_t{rows[half]} * p.y_stride + channel);
            ROCM_SD_UNROLL
            for (int e = 0; e < 8; ++e) v[e] += to_float(piece.x[e]);
          }
        }
        ROCM_SD_UNROLL
        for (int e = 0; e < 8; ++e) bulk_element(sums, half, e) = v[e];
      }
    }
  }

  ROCM_SD_DEVICE void finish(Sums& acc, const BulkPipeline<Cfg>& pipeline) const {
    ROCM_SD_UNROLL
    for (int i = 0; i < kOutputs; ++i) {
      const int channel = channel_of(i);
      if (!pipeline.owns(i) || channel >= p.channels) continue;
      ROCM_SD_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (rows[half] < 0) continue;
        float v[8];
        ROCM_SD_UNROLL
        for (int e = 0; e < 8; ++e) v[e] = bulk_element(pair(acc, i), half, e);
        if constexpr (kGated) {
          ROCM_SD_UNROLL
          for (int e = 0; e < 8; ++e) v[e] *= gelu<Nvidia>(bulk_element(pair(acc, i + kOutputs), half, e));
        } else {
          activate<Nvidia>(p.act, v);
        }
        store8(p.y + int64_t{rows[half]} * p.y_stride + channel, v, true, 8);
      }
    }
  }

 private:
  static ROCM_SD_DEVICE Pair& pair(Sums& acc, int i) { return *reinterpret_cast<Pair*>(&acc.c[2 * i]); }
  ROCM_SD_DEVICE int channel_of(int pair) const { return first_channel + 32 * pair + BulkPlace::channel(); }
  ROCM_SD_DEVICE void add_shift(float (&v)[8], int row, int channel) const {
    const int64_t at = row / p.rows_per_image * p.shift_stride + channel;
    float term[8];
    // A slice of a wider table may begin anywhere.
    const auto load = [&](const auto* from) {
      load8(term, from, reinterpret_cast<uintptr_t>(from) % 16 == 0, 8);
    };
    if (p.shift_is_float)
      load(static_cast<const float*>(p.shift) + at);
    else
      load(static_cast<const T*>(p.shift) + at);
    ROCM_SD_UNROLL
    for (int e = 0; e < 8; ++e) v[e] += term[e];
  }
};

}  // namespace rocm_sd
