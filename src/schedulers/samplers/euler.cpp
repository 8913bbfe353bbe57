// Euler: Karras et al., "Elucidating the Design Space of Diffusion-Based Generative Models", 2022, algorithm
// 2 without its second-order correction.
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_euler(SamplerRun& run, Tensor x) {
  for (int i = 0; i < run.steps(); ++i) {
    const NoiseLevel level = churn(run, x, i);
    const Tensor denoised = run.denoise(x, level);
    x = euler_step(run.ex, x, denoised, level.sigma, run.sigma(i + 1));
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
