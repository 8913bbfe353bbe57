// Dot products of a few rows with a few others, by lanes that share the depth: no matrix instruction.
//   RowPointers   where rows of a matrix begin
//   DotSums       a lane's share of the dot products of kRows rows with kChannels others
#pragma once

#include "composable_kernels/pack.hpp"
#include "composable_kernels/tile/channels.hpp"
#include "composable_kernels/tile/unrolled.hpp"

namespace rocm_sd {

// kCount rows from `first` on; those from `limit` on repeat the last before it.
template <class T, int kCount>
struct RowPointers {
  const T* at[kCount];

  ROCM_SD_DEVICE RowPointers(const T* data, int64_t stride, int first, int limit) {
    ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i) at[i] = data + (first + i < limit ? first + i : limit - 1) * stride;
  }
};

template <int kRows, int kCols>
struct DotSums {
  static_assert(kCols == kChannels);
  Channels x[kRows];
};

// sums[r][c] += sum over i < kCount of x[r][k + i] w[c][k + i]. kCount elements are 16 bytes, aligned to
// them, or one.
template <class Arch, int kCount, class T, int kRows, int kCols>
ROCM_SD_DEVICE void add_dots(DotSums<kRows, kCols>& sums, const RowPointers<T, kRows>& x,
                             const RowPointers<T, kCols>& w, int k) {
  Pack<T, kCount> weights[kCols], row;
  ROCM_SD_UNROLL
  for (int c = 0; c < kCols; ++c) weights[c] = load_pack<kCount>(w.at[c] + k);
  ROCM_SD_UNROLL
  for (int r = 0; r < kRows; ++r) {
    row = load_pack<kCount>(x.at[r] + k);
    if (kCount > 1)
      Arch::fence_schedule();  // rows one by one: converted all at once they are too many registers
    ROCM_SD_UNROLL
    for (int c = 0; c < kCols; ++c) ROCM_SD_UNROLL
    for (int i = 0; i < kCount; ++i) sums.x[r][c] += to_float(row.x[i]) * to_float(weights[c].x[i]);
  }
}

// to (in LDS) = the sums over the wave's lanes, as trees. Two lanes that exchange sums each go on with half
// of them, so that few pass between lanes: in step s those that differ in the s-th bit of their number from
// above, which is then that bit of the numbers of what they keep.
template <class Arch, int kRows, int kCols>
ROCM_SD_DEVICE void sum_lanes(DotSums<kRows, kCols>& to, const DotSums<kRows, kCols>& sums) {
  constexpr int kCount = kRows * kCols, kLanes = Arch::lanes;
  static_assert((kCount & (kCount - 1)) == 0 && (kLanes & (kLanes - 1)) == 0);
  constexpr int kAll = __builtin_ctz(kLanes),
                kSteps = kAll < __builtin_ctz(kCount) ? kAll : __builtin_ctz(kCount);
  float v[kCount];
  ROCM_SD_UNROLL
  for (int i = 0; i < kCount; ++i) v[i] = sums.x[i / kCols][i % kCols];
  unrolled<kSteps>([&](int s) {
    const int mask = kLanes >> (s + 1), half = kCount >> (s + 1);
    const bool last_half = Arch::lane() & mask;
    ROCM_SD_UNROLL
    for (int i = 0; i < kCount / 2; ++i) {
      if (i >= half) continue;
      const float keep = last_half ? v[i + half] : v[i], give = last_half ? v[i] : v[i + half];
      v[i] = keep + Arch::shuffle_xor(give, mask);
    }
  });
  unrolled<kAll - kSteps>([&](int s) { v[0] += Arch::shuffle_xor(v[0], kLanes >> (kSteps + s + 1)); });
  constexpr int kKept = kCount >> kSteps, kAlike = kLanes >> kSteps;  // sums of a lane; lanes with the same
  if (Arch::lane() % kAlike != 0) return;
  ROCM_SD_UNROLL
  for (int i = 0; i < kKept; ++i) {
    const int at = Arch::lane() / kAlike * kKept + i;
    to.x[at / kCols][at % kCols] = v[i];
  }
}

}  // namespace rocm_sd
