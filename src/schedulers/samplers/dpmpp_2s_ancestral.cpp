// DPM++ 2S a: DPM-Solver++(2S) (Lu et al., "DPM-Solver++", 2022, algorithm 1, r = 1/2) to a lower sigma, then
// fresh noise up to the next one (k-diffusion).
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_dpmpp_2s_ancestral(SamplerRun& run, Tensor x) {
  for (int i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i);
    const Tensor denoised = run.denoise(x, i);
    const auto [down, up] = ancestral_step(from, run.sigma(i + 1), *run.options.eta);
    if (down == 0) {
      x = euler_step(run.ex, x, denoised, from, down);
    } else {
      const double middle = std::sqrt(from * down);
      Tensor at_middle = euler_step(run.ex, x, denoised, from, middle);
      x = euler_step(run.ex, x, run.denoise_at(at_middle, middle), from, down);
    }
    add_noise(run, x, up);
    run.report(i, from, x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
