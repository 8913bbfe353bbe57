// DPM++ 2M SDE: SDE-DPM-Solver++(2M) (Lu et al. 2022, section 6, equation 18), the midpoint or the Heun form,
// with k-diffusion's eta: 0 is the ODE, 1 the full SDE.
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_dpmpp_2m_sde(SamplerRun& run, Tensor x) {
  const double eta = *run.options.eta;
  Tensor previous;
  double last_h = 0;
  for (int i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Tensor denoised = run.denoise(x, i);
    if (to == 0) {
      x = denoised;
    } else {
      const double h = std::log(from / to);
      const double whole = h * (1 + eta);
      const double weight = -std::expm1(-whole);
      std::vector<Term> terms = {{std::exp(-whole), x}, {weight, denoised}};
      if (previous) {
        const double second = *run.options.solver == SolverType::kHeun ? 1 - weight / whole : 0.5 * weight;
        const double w = second * h / last_h;
        terms[1].factor += w;
        terms.push_back({-w, previous});
      }
      const double spread = to * safe_sqrt(-std::expm1(-2 * eta * h)) * run.options.s_noise;
      if (spread > 0) terms.push_back({spread, run.noise_between(from, to)});
      x = linear_combination(run.ex, terms);
      last_h = h;
    }
    previous = denoised;
    run.report(i, from, x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
