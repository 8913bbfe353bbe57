// Heun: Karras et al. 2022, algorithm 2: the slope is averaged over both ends of the step.
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_heun(SamplerRun& run, Tensor x) {
  for (int i = 0; i < run.steps(); ++i) {
    const NoiseLevel level = churn(run, x, i);
    const double from = level.sigma, to = run.sigma(i + 1);
    const Tensor denoised = run.denoise(x, level);
    Tensor end = euler_step(run.ex, x, denoised, from, to);
    if (to > 0) {
      const Tensor denoised_end = run.denoise(end, i + 1);
      const double half = 0.5 * (to - from);
      end = linear_combination(
          run.ex,
          {{1 + half / from, x}, {-half / from, denoised}, {half / to, end}, {-half / to, denoised_end}});
    }
    x = end;
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
