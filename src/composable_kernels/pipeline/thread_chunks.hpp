// Which chunks (16 bytes) of a tile [kRows][Cfg::kBlockK] a thread of the workgroup copies: the same in every
// step of the main loop. Neighbouring lanes copy neighbouring chunks of a row.
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

  // LDS takes eight lanes' chunks at a time, those of two rows where a row has four. Padded rows (20 words
  // apart) that are neighbours overlap in four banks, rows r and r + 4 in none.
  static constexpr bool kRowsApart = kPerRow == 4 && Cfg::kLd != Cfg::kBlockK && kThreads % 32 == 0;

  static ROCM_SD_DEVICE bool has(int i) { return kEven || Arch::thread() + i * kThreads < kTotal; }
  static ROCM_SD_DEVICE int row(int i) {
    if (!has(i)) return 0;
    if constexpr (kRowsApart) {
      const int row = Arch::thread() / 4;
      return (row & ~7) + (row % 8 / 2 | row % 2 * 4) + i * (kThreads / 4);
    }
    return (Arch::thread() + i * kThreads) / kPerRow;
  }
  static ROCM_SD_DEVICE int column(int i) { return (Arch::thread() + i * kThreads) % kPerRow * Cfg::kChunk; }
  // Elements from the tile's first.
  static ROCM_SD_DEVICE int place(int i) { return Cfg::element(row(i), column(i)); }
};

}  // namespace rocm_sd
