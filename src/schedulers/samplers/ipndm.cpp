// iPNDM: Adams-Bashforth with the weights of equal steps on the slopes, warmed up by lower orders (Zhang and
// Chen, "Fast Sampling of Diffusion Models with Exponential Integrator", 2023, section 3.4; Liu et al.,
// "Pseudo Numerical Methods for Diffusion Models on Manifolds", 2022).
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_ipndm(SamplerRun& run, Tensor x) {
  std::deque<Tensor> slopes;
  for (int i = 0; i < run.steps(); ++i) {
    const Tensor denoised = run.denoise(x, i);
    push_history(slopes, slope(run.ex, x, denoised, run.sigma(i)), *run.options.order);
    const std::span<const double> weights = fixed_adams_bashforth(static_cast<int>(slopes.size()));
    std::vector<Term> terms = {{1, x}};
    for (size_t j = 0; j < weights.size(); ++j)
      terms.push_back({weights[j] * (run.sigma(i + 1) - run.sigma(i)), slopes[j]});
    x = linear_combination(run.ex, terms);
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
