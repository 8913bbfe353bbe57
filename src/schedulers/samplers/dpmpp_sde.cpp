// DPM++ SDE: DPM-Solver++(2S) with r = 1/2 where both halves are ancestral and the noise is that of one path
// (k-diffusion; Lu et al. 2022, section 6).
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {
namespace {

// Ancestral Euler step of x at `from` to `to`, with the path's noise between them.
Tensor noisy_step(SamplerRun& run, const Tensor& x, const Tensor& denoised, double from, double to) {
  const auto [down, up] = ancestral_step(from, to, *run.options.eta);
  const Tensor out = euler_step(run.ex, x, denoised, from, down);
  if (up == 0) return out;
  return linear_combination(run.ex, {{1, out}, {up * run.options.s_noise, run.noise_between(from, to)}});
}

}  // namespace

Tensor sample_dpmpp_sde(SamplerRun& run, Tensor x) {
  for (int i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Tensor denoised = run.denoise(x, i);
    if (to == 0) {
      x = euler_step(run.ex, x, denoised, from, to);
    } else {
      const double middle = std::sqrt(from * to);
      Tensor at_middle = noisy_step(run, x, denoised, from, middle);
      x = noisy_step(run, x, run.denoise_at(at_middle, middle), from, to);
    }
    run.report(i, from, x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
