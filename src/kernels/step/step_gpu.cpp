// The step ops on a GPU.
#include "kernels/gpu_launch.hpp"
#include "kernels/step/step_configs.hpp"
#include "kernels/step/step_params.hpp"

namespace rocm_sd {
namespace {

using namespace step_configs;

// Workgroups for so many elements, `vec` to a thread; further ones are taken in turn.
uint32_t workgroups_of(const Exec& ex, int64_t size, int vec) {
  const int64_t per_group = int64_t{kThreads} * vec;
  const int64_t most = int64_t{gpu_device(ex)->traits().compute_units} * 16;
  return static_cast<uint32_t>(std::clamp<int64_t>((size + per_group - 1) / per_group, 1, most));
}

template <class Params>
void launch(Exec& ex, OpInfo info, const std::string& kernel, uint32_t workgroups, int threads,
            const Params& params) {
  launch_kernel(ex, std::move(info), *gpu_device(ex)->find_kernel(kernel), {workgroups},
                static_cast<uint32_t>(threads), 0, params);
}

std::string guidance_kernel(const GuidanceProblem& p) {
  return concat(p.rescale > 0 ? "guidance_rescaled_" : "guidance_", p.dtype);
}

}  // namespace

Refusal supports_linear_combination_gpu(const Exec& ex, const LinearCombinationProblem&) {
  return supports_kernel(ex, "linear_combination");
}
void run_linear_combination_gpu(Exec& ex, const LinearCombinationProblem& p) {
  if (p.size == 0) return;
  const uint32_t workgroups = workgroups_of(ex, p.size, 4);
  launch(ex, op_info(p, "gpu"), "linear_combination", workgroups, kThreads,
         linear_combination_params(p, workgroups));
}

Refusal supports_guidance_gpu(const Exec& ex, const GuidanceProblem& p) {
  return supports_kernel(ex, guidance_kernel(p));
}
void run_guidance_gpu(Exec& ex, const GuidanceProblem& p) {
  if (p.images * p.size == 0) return;
  if (p.rescale <= 0) {
    const uint32_t workgroups = workgroups_of(ex, p.images * p.size, 4);
    return launch(ex, op_info(p, "gpu"), guidance_kernel(p), workgroups, kThreads,
                  guidance_params<float>(p, workgroups));
  }
  const GuidanceParts parts = guidance_parts(p);
  const auto workgroups = static_cast<uint32_t>(p.images * parts.parts);
  const Tensor moments = ex.alloc({workgroups, 4}, DType::kF64);
  const auto params = guidance_params<float>(p, workgroups, moments.as<double>(), parts);
  launch(ex, {p.op(), concat("gpu moments ", p.describe()), 0, 0}, concat("guidance_moments_", p.dtype),
         workgroups, kThreads, params);
  launch(ex, op_info(p, "gpu"), guidance_kernel(p), workgroups, kThreads, params);
}

Refusal supports_count_nonfinite_gpu(const Exec& ex, const CountNonfiniteProblem& p) {
  return supports_kernel(ex, concat("count_nonfinite_", p.dtype));
}
void run_count_nonfinite_gpu(Exec& ex, const CountNonfiniteProblem& p) {
  const uint32_t workgroups = std::min<uint32_t>(workgroups_of(ex, p.size, 8), kMaxCounts);
  const Tensor partial = ex.alloc({workgroups}, DType::kF64);
  const auto params = count_nonfinite_params<float>(p, partial.as<double>(), workgroups);
  launch(ex, op_info(p, "gpu"), concat("count_nonfinite_", p.dtype), workgroups, kThreads, params);
  launch(ex, {p.op(), concat("gpu sum ", p.describe()), 0, 0}, "sum_counts", 1,
         gpu_device(ex)->traits().lanes, params);
}

}  // namespace rocm_sd
