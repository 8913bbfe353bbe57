// The portable bodies of the step ops on the host's threads.
#include "composable_kernels/fused/step.hpp"

#include "kernels/scalar_launch.hpp"
#include "kernels/step/step_impl.hpp"

namespace rocm_sd {
namespace {

static_assert(LinearCombinationParams::kMaxTerms == LinearCombinationProblem::kMaxTerms);

void linear_combination_scalar(const LinearCombinationProblem& p) {
  LinearCombinationParams params{.terms = {}, .factors = {}, .count = p.count, .y = p.y, .size = p.size};
  for (int t = 0; t < p.count; ++t) {
    params.terms[t] = p.terms[t];
    params.factors[t] = p.factors[t];
  }
  for_each_block(p.size, [&](const Block<Scalar>& block) { linear_combination_body<Scalar>(params, block); });
}

void guidance_scalar(const GuidanceProblem& p) {
  with_storage(p.dtype, [&](auto storage) {
    using T = decltype(storage);
    const GuidanceParams<T> params{static_cast<const T*>(p.x), p.y, p.images, p.size, p.scale, p.rescale};
    for_each_block(p.images,
                   [&](const Block<Scalar>& block) { guidance_body<Scalar, StorageCfg<T>>(params, block); });
  });
}

}  // namespace

void run_linear_combination_scalar(Exec& ex, const LinearCombinationProblem& problem) {
  launch_problem(ex, problem, "scalar", linear_combination_scalar);
}
void run_guidance_scalar(Exec& ex, const GuidanceProblem& problem) {
  launch_problem(ex, problem, "scalar", guidance_scalar);
}

}  // namespace rocm_sd
