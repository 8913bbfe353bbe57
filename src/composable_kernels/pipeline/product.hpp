// What a pipeline of a product's operands is: tiles of the weights [kBlockN][kBlockK] and of the rows
// [kBlockM][kBlockK], step by step of k, from memory to the matrix units. fused/main_loop.hpp runs it.
//
// A policy (RegisterStaged, AsyncCopies, hopper/wgmma_product.hpp) has
//   Product<Arch, Cfg, Weights, Rows>, of which
//     WeightCopy, RowCopy  a thread's part in copying the operands; made of the sources, before the rest
//     kAhead               steps whose copies are under way
//     kPrefetch            when a step starts the copies of a later one
//     prefetch(step)       the copies of that step start, into the next stage; none if it is beyond the last
//     receive()            the step's tiles have come, for the whole workgroup
//     mma(acc)             acc += weights x rows^T, of the step's tiles
//     advance()            the next step
//     finish(acc)          acc may be read
// The copies are objects of their own because compilers keep in registers what no array lies beside.
#pragma once

#include "composable_kernels/pipeline/thread_chunks.hpp"
#include "composable_kernels/tile/wave_tile.hpp"

namespace rocm_sd {

enum class Prefetch { kBeforeMma, kAfterMma };

// Tiles of the operands in LDS, in Cfg::kStages stages: a stage is [kBlockN][kLd] of weights, then
// [kBlockM][kLd] of rows, without the operand that goes around LDS.
template <class Cfg>
struct StageRing {
  using T = typename Cfg::T;
  static constexpr int kStages = Cfg::kStages;
  static constexpr int kRowsAt = Cfg::kShape.staged_n() * Cfg::kLd;
  static constexpr int kStageSize = kRowsAt + Cfg::kShape.staged_m() * Cfg::kLd;

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
