// The portable bodies of the step ops on the host's threads.
#include "kernels/scalar_launch.hpp"
#include "kernels/step/step_params.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMaxBlocks = 1024;

int64_t blocks_of(int64_t size) { return std::min(size, kMaxBlocks); }

void linear_combination_scalar(const LinearCombinationProblem& p) {
  const LinearCombinationParams params = linear_combination_params(p, 1);
  for_each_block(blocks_of(p.size),
                 [&](const Block<Scalar>& block) { linear_combination_body(params, block); });
}

void guidance_scalar(const GuidanceProblem& p, double* moments) {
  with_storage(p.dtype, [&](auto storage) {
    using T = decltype(storage);
    if (p.rescale > 0) {
      const GuidanceParts parts = guidance_parts(p);
      const auto params = guidance_params<T>(p, 1, moments, parts);
      for_each_block(p.images * parts.parts, [&](const Block<Scalar>& block) {
        double lds = 0;
        guidance_moments_body<Scalar, StorageCfg<T>>(params, block, &lds);
      });
      for_each_block(p.images * parts.parts, [&](const Block<Scalar>& block) {
        guidance_rescaled_body<Scalar, StorageCfg<T>>(params, block);
      });
      return;
    }
    const auto params = guidance_params<T>(p, 1);
    for_each_block(blocks_of(p.images * p.size),
                   [&](const Block<Scalar>& block) { guidance_body<Scalar, StorageCfg<T>>(params, block); });
  });
}

void count_nonfinite_scalar(const CountNonfiniteProblem& p, double* partial, int64_t workgroups) {
  with_storage(p.dtype, [&](auto storage) {
    using T = decltype(storage);
    const auto params = count_nonfinite_params<T>(p, partial, static_cast<uint32_t>(workgroups));
    for_each_block(workgroups, [&](const Block<Scalar>& block) {
      double lds = 0;
      count_nonfinite_body<Scalar, StorageCfg<T>>(params, block, &lds);
    });
    sum_counts_body(params, Block<Scalar>{});
  });
}

}  // namespace

void run_linear_combination_scalar(Exec& ex, const LinearCombinationProblem& problem) {
  launch_problem(ex, problem, "scalar", linear_combination_scalar);
}
void run_guidance_scalar(Exec& ex, const GuidanceProblem& problem) {
  if (problem.images * problem.size == 0) return;
  const Tensor moments = ex.alloc({problem.images, guidance_parts(problem).parts, 4}, DType::kF64);
  ex.launch(op_info(problem, "scalar"),
            [problem, moments = moments.as<double>()] { guidance_scalar(problem, moments); });
}
void run_count_nonfinite_scalar(Exec& ex, const CountNonfiniteProblem& problem) {
  const int64_t workgroups = blocks_of(problem.size);
  const Tensor partial = ex.alloc({workgroups}, DType::kF64);
  ex.launch(op_info(problem, "scalar"), [problem, partial = partial.as<double>(), workgroups] {
    count_nonfinite_scalar(problem, partial, workgroups);
  });
}

}  // namespace rocm_sd
