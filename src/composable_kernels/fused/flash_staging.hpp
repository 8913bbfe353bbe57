// Copies of a rectangle of 16-bit rows from global memory to LDS by a whole workgroup, cut into issue (the
// reads) and land (what remains until LDS holds it), so that matrix work can run between the two.
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

// 16 bytes as one value: an aggregate would be copied through memory by clang 19.
#if defined(__CUDACC__)
using FlashChunk = uint4;
#else
using FlashChunk = uint32_t __attribute__((vector_size(16)));
#endif

// 8 elements of a row of kLd elements in LDS, whose rows may begin at multiples of 8 bytes only. A typedef of
// its own lowers an alignment; as a template's argument it would lose it.
#if !defined(__CUDACC__)
typedef FlashChunk HalfAlignedChunk __attribute__((aligned(8), may_alias));
#endif
template <int kLd, class T>
ROCM_SD_DEVICE FlashChunk load_chunk(const T* at) {
#if !defined(__CUDACC__)
  if constexpr (kLd % 8 != 0) return *reinterpret_cast<const HalfAlignedChunk*>(at);
#endif
  return *reinterpret_cast<const FlashChunk*>(at);
}
template <int kLd, class T>
ROCM_SD_DEVICE void store_chunk(T* at, FlashChunk chunk) {
#if !defined(__CUDACC__)
  if constexpr (kLd % 8 != 0) {
    *reinterpret_cast<HalfAlignedChunk*>(at) = chunk;
    return;
  }
#endif
  *reinterpret_cast<FlashChunk*>(at) = chunk;
}

// Through registers, a thread that has run out of items copies its own of the round before once more: a
// branch would cut the loop's body apart, and compilers then move loads and products away from each other;
// another thread's item would be two threads' writes to one place. Where there is one round only, the last
// item is everybody's. An asynchronous copy is predicated instead.
template <int kTotal, int kThreads>
ROCM_SD_DEVICE int flash_item(int i) {
  if (kTotal % kThreads == 0 || i < kTotal) return i;
  return kTotal > kThreads ? i - kThreads : kTotal - 1;
}

// kRows rows of kCols elements, kCols % 8 == 0, to rows of kLd elements. Rows from `valid` on repeat the last
// valid one: the reader hides them.
template <class Arch, class T, int kThreads, int kRows, int kCols, int kLd>
struct RowStaging {
  static constexpr int kChunks = kCols / 8, kTotal = kRows * kChunks;
  static constexpr int kPerThread = (kTotal + kThreads - 1) / kThreads;
  static constexpr bool kHolds = !Arch::kAsyncCopies;
  FlashChunk held[kHolds ? kPerThread : 1];

  // valid >= 1
  ROCM_SD_DEVICE void issue(const T* from, int64_t stride, int valid, [[maybe_unused]] T* lds) {
    ROCM_SD_UNROLL
    for (int n = 0; n < kPerThread; ++n) {
      const int mine = Arch::thread() + n * kThreads;
      const int i = kHolds ? flash_item<kTotal, kThreads>(mine) : mine;
      const int row = i / kChunks, chunk = i % kChunks;
      const T* source = from + (row < valid ? row : valid - 1) * stride + chunk * 8;
      if constexpr (kHolds)
        held[n] = *reinterpret_cast<const FlashChunk*>(source);
      else if ((n + 1) * kThreads <= kTotal)
        Arch::copy_async(lds + row * kLd + chunk * 8, source, true);
      else
        Arch::copy_async_if(mine < kTotal, lds + row * kLd + chunk * 8, source);
    }
  }
  ROCM_SD_DEVICE void land([[maybe_unused]] T* lds) {
    if constexpr (kHolds) {
      ROCM_SD_UNROLL
      for (int n = 0; n < kPerThread; ++n) {
        const int i = flash_item<kTotal, kThreads>(Arch::thread() + n * kThreads);
        store_chunk<kLd>(lds + i / kChunks * kLd + i % kChunks * 8, held[n]);
      }
    }
  }
};

// The same rectangle transposed: LDS holds kCols rows of kRows elements, kLd elements apart. A thread takes 8
// columns of two rows and writes pairs; neighbouring lanes take neighbouring pairs, so that LDS's banks are
// all in use.
template <class Arch, class T, int kThreads, int kRows, int kCols, int kLd>
struct TransposedStaging {
  static constexpr int kPairs = kRows / 2, kTotal = kPairs * (kCols / 8);
  static constexpr int kPerThread = (kTotal + kThreads - 1) / kThreads;
  FlashChunk held[kPerThread][2];

  ROCM_SD_DEVICE void issue(const T* from, int64_t stride, int valid, T*) {
    ROCM_SD_UNROLL
    for (int n = 0; n < kPerThread; ++n) {
      const int i = flash_item<kTotal, kThreads>(Arch::thread() + n * kThreads);
      const T* column = from + i / kPairs * 8;
      ROCM_SD_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = i % kPairs * 2 + half;
        held[n][half] =
            *reinterpret_cast<const FlashChunk*>(column + (row < valid ? row : valid - 1) * stride);
      }
    }
  }
  ROCM_SD_DEVICE void land(T* lds) {
    ROCM_SD_UNROLL
    for (int n = 0; n < kPerThread; ++n) {
      const int i = flash_item<kTotal, kThreads>(Arch::thread() + n * kThreads);
      T* to = lds + i / kPairs * 8 * kLd + i % kPairs * 2;
      ROCM_SD_UNROLL
      for (int e = 0; e < 8; e += 2) {
        const uint32_t first = held[n][0][e / 2], second = held[n][1][e / 2];
        *reinterpret_cast<uint32_t*>(to + e * kLd) = (first & 0xffff) | second << 16;
        *reinterpret_cast<uint32_t*>(to + (e + 1) * kLd) = first >> 16 | (second & 0xffff0000);
      }
    }
  }
};

}  // namespace rocm_sd
