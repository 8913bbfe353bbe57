// Euler a: an Euler step to a lower sigma, then fresh noise up to the next one (k-diffusion).
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_euler_ancestral(SamplerRun& run, Tensor x) {
  for (int i = 0; i < run.steps(); ++i) {
    const Tensor denoised = run.denoise(x, i);
    const auto [down, up] = ancestral_step(run.sigma(i), run.sigma(i + 1), *run.options.eta);
    x = euler_step(run.ex, x, denoised, run.sigma(i), down);
    add_noise(run, x, up);
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
