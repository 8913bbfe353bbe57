// Which kernel of flash attention a problem runs in, and how its keys are split.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/attention_map.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {

// A row of a family's tables, as a launch needs it.
struct FlashKernel {
  std::string name;   // "flash_f16_d64_q16_k64_w8_s2"
  int queries, keys;  // of a workgroup's tile
  int waves;          // of a workgroup
  int occupancy;      // workgroups that a compute unit holds at once
  int lds_bytes;
  FlashAlgorithm algorithm = FlashAlgorithm::kWaves;
  double relative_cost = 1;              // of its MMA
  const AttentionMapRow* row = nullptr;  // why it takes the problem
};

struct FlashPlan {
  FlashKernel kernel;
  int64_t tiles = 0;           // of queries, of a head
  int64_t run_tiles = 0;       // of kSingleTileKv: tiles of any heads that a workgroup takes
  int splits = 1;              // of the keys; more than one needs the merge
  int64_t keys_per_split = 0;  // a multiple of kernel.keys
  double cost = 0;             // an estimate to compare plans by: nanoseconds where times were modelled
};

// The kernels for the problem's type, head_dim and mask, best first for large problems; may be none.
std::vector<FlashKernel> flash_candidates(const AttentionProblem& problem, const GpuTraits& traits);

// The kernel with the keys in so many splits of whole tiles; fewer may come out.
FlashPlan plan_flash(const FlashKernel& kernel, int splits, const AttentionProblem& problem,
                     const GpuTraits& traits);

// The cheapest of all candidates and splits by the estimate; there must be a candidate.
FlashPlan default_config(const AttentionProblem& problem, const GpuTraits& traits);

// "flash_f16_d64_q16_k64_w8_s2/3": 3 splits. Every plan of a problem that is worth measuring, the default
// first; and the configurations of the implementation "gpu" by these names.
std::string describe(const FlashPlan& plan);
std::vector<FlashPlan> flash_plans(const AttentionProblem& problem, const GpuTraits& traits);
extern const Configs<AttentionProblem> kFlashConfigs;

// The cheapest whose results can be merged with those of other keys: no kernel that has all keys at once.
// Nothing where there is no kernel.
std::optional<FlashPlan> partial_plan(const AttentionProblem& problem, const GpuTraits& traits);

// What splits of the keys write, and the merge reads: of `count` splits sums [rows,D] and [rows,2] the
// greatest score and the sum of the weights.
struct FlashPartials {
  Tensor sums, stats;  // [count,rows,D], [count,rows,2] f32
  int count = 0;

  FlashPartials(Exec& ex, const AttentionProblem& problem, int count);
  double bytes_of(int splits) const {
    return static_cast<double>((sums.bytes() + stats.bytes()) / static_cast<size_t>(count)) * splits;
  }
};
// Launches the plan's kernel for its splits, which write the partials from `first` on.
void run_flash_splits(Exec& ex, const AttentionProblem& problem, const FlashPlan& plan,
                      const FlashPartials& partials, int first);
void merge_flash(Exec& ex, const AttentionProblem& problem, const FlashPartials& partials);

// Launches the plan's kernels on a GPU Exec; the problem as supports_attention_gpu takes it.
void run_flash(Exec& ex, const AttentionProblem& problem, const FlashPlan& plan);

}  // namespace rocm_sd
