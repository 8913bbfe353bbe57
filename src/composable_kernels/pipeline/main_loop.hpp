// The main loop of every product: C[n][m] += sum over k of weight[n][k] * activation[m][k], a step of kBlockK
// at a time. GEMM and convolution share it; of what type the operands are is the atom's matter, how tiles
// come to the matrix units the pipeline's.
//
// A pipeline (pipeline/<policy>.hpp) has
//   kAhead               steps whose copies are under way
//   kPrefetch            when a step starts the copies of a later one
//   receive()            the step's tiles have come, for the whole workgroup
//   prefetch(step)       the copies of that step start, into the next stage; none if it is beyond the last
//   mma(acc)             acc += weights x rows^T, of the step's tiles
//   advance()            the next step
//   finish(acc)          acc may be read
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

enum class Prefetch { kBeforeMma, kAfterMma };

// Adds steps [first, last) to acc, last being the pipeline's. Every thread of the workgroup must come here.
template <class Pipeline, class Acc>
ROCM_SD_DEVICE void main_loop(Acc& acc, Pipeline& tiles, int first, int last) {
  constexpr bool kEarly = Pipeline::kPrefetch == Prefetch::kBeforeMma;
  const auto prefetch = [&](int step) { tiles.prefetch(step); };
  ROCM_SD_UNROLL
  for (int ahead = 0; ahead < Pipeline::kAhead; ++ahead) prefetch(first + ahead);
  for (int step = first; step < last; ++step) {
    tiles.receive();
    if (kEarly) prefetch(step + Pipeline::kAhead);
    tiles.mma(acc);
    if (!kEarly) prefetch(step + Pipeline::kAhead);
    tiles.advance();
  }
  tiles.finish(acc);
}

}  // namespace rocm_sd
