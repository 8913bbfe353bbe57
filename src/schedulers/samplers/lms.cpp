// LMS: linear multistep. The last slopes are interpolated over sigma and integrated across the step:
// Adams-Bashforth with variable steps (Hairer, Norsett and Wanner, "Solving Ordinary Differential Equations
// I", section III.5). iPNDM_v is this method by another name.
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_lms(SamplerRun& run, Tensor x) {
  std::deque<Tensor> slopes;
  std::deque<double> sigmas;
  for (int i = 0; i < run.steps(); ++i) {
    const Tensor denoised = run.denoise(x, i);
    push_history(slopes, slope(run.ex, x, denoised, run.sigma(i)), *run.options.order);
    sigmas.push_front(run.sigma(i));
    sigmas.resize(slopes.size());
    const std::vector<double> points(sigmas.begin(), sigmas.end());
    const std::vector<double> weights = adams_bashforth(points, run.sigma(i + 1));
    std::vector<Term> terms = {{1, x}};
    for (size_t j = 0; j < weights.size(); ++j) terms.push_back({weights[j], slopes[j]});
    x = linear_combination(run.ex, terms);
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
