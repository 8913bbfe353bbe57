// Register tiles of warpgroup products (sm_90a): what a thread holds of 64 rows, of which two are its own
// (row h: 8 h further than its first). Verbs are free functions, destination first;
// arch/hopper_wgmma_rows.hpp has the layouts.
#pragma once

#include "composable_kernels/arch/hopper_wgmma_rows.hpp"

namespace rocm_sd {

// Accumulators [64][kCols], in float.
template <int kColumnCount>
struct WgmmaTile {
  static constexpr int kCols = kColumnCount, kCount = kCols / 2;
  float x[kCount];
};

// The operand A [64][kDepth], in 16 bits.
template <class Storage, int kDepthCount>
struct WgmmaOperand {
  using T = Storage;
  static constexpr int kDepth = kDepthCount;
  uint32_t x[kDepth / 16][4];
};

// A value for each of the thread's rows.
struct RowPair {
  float x[2];
};

// f(element&, h, column): of the columns that the first of four lanes holds; the others' are 2, 4, 6 further.
// [kFirst, kLast): of the thread's elements.
template <int kFirst, int kLast, int kCols, class F>
ROCM_SD_DEVICE void for_elements(WgmmaTile<kCols>& t, const F& f) {
  ROCM_SD_UNROLL
  for (int i = kFirst; i < kLast; ++i) f(t.x[i], i / 2 % 2, i / 4 * 8 + i % 2);
}
template <int kCols, class F>
ROCM_SD_DEVICE void for_each(WgmmaTile<kCols>& t, const F& f) {
  for_elements<0, WgmmaTile<kCols>::kCount>(t, f);
}
// f(x, y, h, column) for each two neighbours of a row.
template <int kCols, class F>
ROCM_SD_DEVICE void for_pairs(WgmmaTile<kCols>& t, const F& f) {
  ROCM_SD_UNROLL
  for (int i = 0; i < WgmmaTile<kCols>::kCount; i += 2) f(t.x[i], t.x[i + 1], i / 2 % 2, i / 4 * 8);
}
// f(h) for the thread's two rows.
template <class F>
ROCM_SD_DEVICE void for_rows(const F& f) {
  ROCM_SD_UNROLL
  for (int h = 0; h < 2; ++h) f(h);
}

template <int kCols>
ROCM_SD_DEVICE void fill(WgmmaTile<kCols>& t, float value) {
  for_each(t, [&](float& x, int, int) { x = value; });
}
ROCM_SD_DEVICE void fill(RowPair& v, float value) { v.x[0] = v.x[1] = value; }
template <int kCols>
ROCM_SD_DEVICE void scale(WgmmaTile<kCols>& t, const RowPair& by) {
  for_each(t, [&](float& x, int h, int) { x *= by.x[h]; });
}
// Of the four lanes that share a row.
ROCM_SD_DEVICE void sum_lanes(RowPair& v) {
  for_rows([&](int h) {
    v.x[h] += Nvidia::shuffle_xor(v.x[h], 1);
    v.x[h] += Nvidia::shuffle_xor(v.x[h], 2);
  });
}
template <int kCols>
ROCM_SD_DEVICE void row_max(RowPair& most, WgmmaTile<kCols>& t) {
  fill(most, -__builtin_inff());
  for_each(t, [&](float x, int h, int) { most.x[h] = fmaxf(most.x[h], x); });
  for_rows([&](int h) {
    most.x[h] = fmaxf(most.x[h], Nvidia::shuffle_xor(most.x[h], 1));
    most.x[h] = fmaxf(most.x[h], Nvidia::shuffle_xor(most.x[h], 2));
  });
}
// t = 2^t, and the rows' sums of the thread's own elements. A batch of exponentials follows another and is
// summed while the next is under way: sums in between would wait for one exponential each, and those behind
// them with them. Takes a few registers more.
template <int kCols>
ROCM_SD_DEVICE void exp2_and_sum_in_batches(WgmmaTile<kCols>& t, RowPair& sum) {
  constexpr int kBatch = 8, kCount = WgmmaTile<kCols>::kCount;
  static_assert(kCount % kBatch == 0);
  float sums[2][2] = {};  // two to a row, of which additions take turns
  ROCM_SD_UNROLL
  for (int first = 0; first <= kCount; first += kBatch) {
    ROCM_SD_UNROLL
    for (int i = first; i < first + kBatch && i < kCount; ++i) WarpgroupRows::exp2_in_order(t.x[i]);
    ROCM_SD_UNROLL
    for (int i = first - kBatch; i >= 0 && i < first; ++i) {
      WarpgroupRows::pin_one(t.x[i]);
      sums[i / 2 % 2][i % 2] += t.x[i];
    }
  }
  for_rows([&](int h) { sum.x[h] = sums[h][0] + sums[h][1]; });
}
// t in 16 bits, as the operand of the next product.
template <class T, int kCols>
ROCM_SD_DEVICE void convert(WgmmaOperand<T, kCols>& a, const WgmmaTile<kCols>& t) {
  ROCM_SD_UNROLL
  for (int i = 0; i < WgmmaTile<kCols>::kCount; i += 2)
    a.x[i / 8][i / 4 % 2 * 2 + i / 2 % 2] = Atom<Nvidia, T>::pack(t.x[i], t.x[i + 1]);
}

// The thread's elements of row h: to those places of a row of floats, or times `factor` of T, whose first is
// at `to`.
template <int kCols>
ROCM_SD_DEVICE void store_row(float* to, const WgmmaTile<kCols>& t, int h) {
  ROCM_SD_UNROLL
  for (int i = 0; i < kCols / 8; ++i)
    *reinterpret_cast<float2*>(to + i * 8) = {t.x[4 * i + 2 * h], t.x[4 * i + 2 * h + 1]};
}
template <class T, int kCols>
ROCM_SD_DEVICE void store_row(T* to, const WgmmaTile<kCols>& t, int h, float factor) {
  ROCM_SD_UNROLL
  for (int i = 0; i < kCols / 8; ++i)
    *reinterpret_cast<uint32_t*>(to + i * 8) =
        Atom<Nvidia, T>::pack(t.x[4 * i + 2 * h] * factor, t.x[4 * i + 2 * h + 1] * factor);
}

// ---- products: they run beside the threads until wait() ----

// c = a b^T. b: rows [kCols][a's depth] in LDS, in panels of 64 of depth, kPanel elements apart.
template <int kPanel, class T, int kCols, int kDepth>
ROCM_SD_DEVICE void start_mma_ABt(WgmmaTile<kCols>& c, const WgmmaOperand<T, kDepth>& a, const T* b) {
  Warpgroup::begin();
  const uint64_t from = Warpgroup::tile(b);
  ROCM_SD_UNROLL
  for (int d = 0; d < kDepth / 16; ++d)
    WgmmaRows<T, kCols, false>::mma(c.x, a.x[d],
                                    from + d / 4 * (kPanel * 2 >> 4) + d % 4 * Warpgroup::kNextDepth, d > 0);
  Warpgroup::commit();
}
// c += a b, or c = a b. b: rows [a's depth][kCols] in LDS, in panels of 64 columns, kPanel elements apart.
enum class Accumulation { kAdd, kReplace };
template <int kPanel, Accumulation kSum = Accumulation::kAdd, class T, int kCols, int kDepth>
ROCM_SD_DEVICE void start_mma_AB(WgmmaTile<kCols>& c, const WgmmaOperand<T, kDepth>& a, const T* b) {
  Warpgroup::begin();
  const uint64_t from = WarpgroupRows::tile_along_columns(b, kPanel * 2);
  ROCM_SD_UNROLL
  for (int d = 0; d < kDepth / 16; ++d)
    WgmmaRows<T, kCols, true>::mma(c.x, a.x[d], from + d * WarpgroupRows::kNextRows,
                                   kSum == Accumulation::kAdd ? 1 : d > 0);
  Warpgroup::commit();
}

// The compiler may not move work on the tile across.
template <int kCols>
ROCM_SD_DEVICE void pin(WgmmaTile<kCols>& t) {
  WarpgroupRows::pin(t.x);
}
template <class T, int kDepth>
ROCM_SD_DEVICE void pin(WgmmaOperand<T, kDepth>& a) {
  WarpgroupRows::pin(a.x);
}
// Until at most kPending products are under way; t is then what they have made of it.
template <int kPending, int kCols>
ROCM_SD_DEVICE void wait(WgmmaTile<kCols>& t) {
  Warpgroup::wait<kPending>();
  pin(t);
}

}  // namespace rocm_sd
