// Which chunks (16 bytes) of a tile [kRows][Cfg::kBlockK] a thread of the workgroup copies: the same in every
// step of the main loop.
#pragma once

#include "composable_kernels/tile/matrix_rows.hpp"

namespace rocm_sd {

template <class Arch, class Cfg, int kRows>
struct ThreadChunks {
  static constexpr int kThreads = Cfg::kWaves * Arch::lanes;
  static constexpr int kPerRow = Cfg::kBlockK / Cfg::kChunk;
  static constexpr int kTotal = kRows * kPerRow;
  static constexpr int kCount = (kTotal + kThreads - 1) / kThreads;  // of a thread, at most
  static constexpr bool kEven = kTotal % kThreads == 0;              // every thread has kCount
  static constexpr bool kOneColumn = kThreads % kPerRow == 0;        // all of a thread's have one k

  static ROCM_SD_DEVICE bool has(int i) { return kEven || Arch::thread() + i * kThreads < kTotal; }
  static ROCM_SD_DEVICE int row(int i) { return has(i) ? (Arch::thread() + i * kThreads) / kPerRow : 0; }
  static ROCM_SD_DEVICE int column(int i) { return (Arch::thread() + i * kThreads) % kPerRow * Cfg::kChunk; }
  // Elements from the tile's first.
  static ROCM_SD_DEVICE int place(int i) { return Cfg::element(row(i), column(i)); }
};

// Tiles of both operands in LDS, in Cfg::kStages stages: a stage is [kBlockN][kLd] of weights, then
// [kBlockM][kLd] of rows.
template <class Cfg>
struct StageRing {
  using T = typename Cfg::T;
  static constexpr int kStages = Cfg::kStages;
  static constexpr int kRowsAt = Cfg::kBlockN * Cfg::kLd,
                       kStageSize = (Cfg::kBlockN + Cfg::kBlockM) * Cfg::kLd;

  T* const tiles;
  int stage = 0, free = 0;  // the one of this step; the one that the next copies go to

  ROCM_SD_DEVICE T* weights(int of) const { return tiles + of * kStageSize; }
  ROCM_SD_DEVICE T* rows(int of) const { return weights(of) + kRowsAt; }
  ROCM_SD_DEVICE void advance() { step(stage); }
  ROCM_SD_DEVICE void fill() { step(free); }

 private:
  static ROCM_SD_DEVICE void step(int& of) {
    if constexpr (kStages > 1) of = of + 1 == kStages ? 0 : of + 1;
  }
};

}  // namespace rocm_sd
