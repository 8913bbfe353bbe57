// linear on a GPU: the configurations that a problem may take, and which one it takes.
#pragma once

#include <vector>

#include "composable_kernels/families/gemm_config.hpp"
#include "kernels/family/explanation.hpp"
#include "kernels/family/gemm_map.hpp"
#include "kernels/gemm/linear_impl.hpp"
#include "kernels/shared_tiles.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {

// How a problem is computed: by tiles of `config` with the depth cut into `splits` parts, or, without a
// config, by the kernel for few rows.
struct GemmChoice {
  const GemmConfig* config = nullptr;
  int splits = 1;          // tma: within a cluster
  int multicast_size = 1;  // tma: workgroups of a cluster that share a tile of the weight
  SharedTileSet split_tiles = SharedTileSet::kAll;  // which have splits
};

// Those compiled for this GPU and type whose LDS it has; gated: with a kernel that pairs values and gates.
std::vector<const GemmConfig*> gemm_configs(const GpuTraits& traits, DType dtype, bool gated);

// Why the choice takes the problem, and its estimated time in cycles or nanoseconds: of algorithms of one
// rank the least is taken.
struct GemmReason {
  const GemmMapRow* row = nullptr;
  double cost = 0;
};
GemmReason reason_of(const GpuTraits& traits, const LinearProblem& p, const GemmChoice& choice);
Explanation linear_explanation(const GpuTraits& traits, const LinearProblem& p);

// Every choice worth measuring, for a tuner; and the one that is taken untuned, by an estimate of its time.
std::vector<GemmChoice> linear_candidates(const GpuTraits& traits, const LinearProblem& p);
GemmChoice linear_default_config(const GpuTraits& traits, const LinearProblem& p);

// "gemm_f16_128x128x32", "gemv_geglu_bf16".
std::string gemm_kernel_name(const GpuTraits& traits, const GemmChoice& choice, DType dtype, bool gated);
// "128x128x32/3": 3 splits; "128x128x32/3r": of the tiles of the last round alone; "128x256x64g": by
// warpgroup products; "128x256x64b2": by TMA with 2 multicast_size, "t2": in ping-pong; "gemv".
std::string describe(const GemmChoice& choice);

Refusal linear_supports_gpu(const Exec& ex, const LinearProblem& p);
// Whether a kernel of the algorithm that `plain`, the same problem without its low-rank term, takes
// multiplies the term as well: few rows and warpgroup MMA without TMA do not.
bool linear_gpu_adds_low_rank(const Exec& ex, const LinearProblem& p, const LinearProblem& plain);
void linear_gpu(Exec& ex, const LinearProblem& p);
// With a choice of the caller's; one of linear_candidates().
void linear_gpu_as(Exec& ex, const LinearProblem& p, const GemmChoice& choice);
extern const Configs<LinearProblem> kLinearGpuConfigs;  // by describe(choice)

}  // namespace rocm_sd
