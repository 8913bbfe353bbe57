// RES multistep: second-order exponential multistep (Zhang et al., "Improved Order Analysis and Design of
// Exponential Integrator for Diffusion Models Sampling", 2023, algorithm 2, eta 0).
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_res_multistep(SamplerRun& run, Tensor x) {
  Tensor previous;
  for (int i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Tensor denoised = run.denoise(x, i);
    if (to == 0 || !previous) {
      x = euler_step(run.ex, x, denoised, from, to);
    } else {
      const double h = std::log(from / to), last_h = std::log(run.sigma(i - 1) / from);
      const double phi1 = -std::expm1(-h);
      const double w = (1 - phi1 / h) * h / last_h;  // of the difference to the last prediction
      x = linear_combination(run.ex, {{to / from, x}, {phi1 + w, denoised}, {-w, previous}});
    }
    previous = denoised;
    run.report(i, from, x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
