// DPM2: the slope is taken at the geometric mean of both sigmas (DPM-Solver-2 of Lu et al., 2022, in the
// variables of Karras et al. 2022).
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_dpm2(SamplerRun& run, Tensor x) {
  for (int i = 0; i < run.steps(); ++i) {
    const NoiseLevel level = churn(run, x, i);
    const double from = level.sigma, to = run.sigma(i + 1);
    const Tensor denoised = run.denoise(x, level);
    if (to == 0) {
      x = euler_step(run.ex, x, denoised, from, to);
    } else {
      const double middle = std::sqrt(from * to);
      Tensor at_middle = euler_step(run.ex, x, denoised, from, middle);
      const Tensor denoised_middle = run.denoise_at(at_middle, middle);
      const double step = (to - from) / middle;
      x = linear_combination(run.ex, {{1, x}, {step, at_middle}, {-step, denoised_middle}});
    }
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
