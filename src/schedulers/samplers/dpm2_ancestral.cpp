// DPM2 a: a DPM2 step to a lower sigma, then fresh noise up to the next one (k-diffusion).
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_dpm2_ancestral(SamplerRun& run, Tensor x) {
  for (int i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i);
    const Tensor denoised = run.denoise(x, i);
    const auto [down, up] = ancestral_step(from, run.sigma(i + 1), *run.options.eta);
    if (down == 0) {
      x = euler_step(run.ex, x, denoised, from, down);
    } else {
      const double middle = std::sqrt(from * down);
      Tensor at_middle = euler_step(run.ex, x, denoised, from, middle);
      const Tensor denoised_middle = run.denoise_at(at_middle, middle);
      const double step = (down - from) / middle;
      x = linear_combination(run.ex, {{1, x}, {step, at_middle}, {-step, denoised_middle}});
    }
    add_noise(run, x, up);
    run.report(i, from, x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
