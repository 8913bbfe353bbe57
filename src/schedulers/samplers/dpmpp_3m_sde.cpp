// DPM++ 3M SDE: k-diffusion's third-order multistep form of SDE-DPM-Solver++.
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_dpmpp_3m_sde(SamplerRun& run, Tensor x) {
  const double eta = *run.options.eta;
  std::deque<Tensor> denoised;  // newest first
  double h1 = 0, h2 = 0;        // the last two steps in log sigma
  for (int i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    push_history(denoised, run.denoise(x, i), 3);
    if (to == 0) {
      x = denoised[0];
    } else {
      const double h = std::log(from / to);
      const double whole = h * (1 + eta);
      const double phi1 = -std::expm1(-whole);
      const double phi2 = 1 - phi1 / whole;
      std::vector<Term> terms = {{std::exp(-whole), x}, {phi1, denoised[0]}};
      if (denoised.size() == 3) {
        const double phi3 = phi2 / whole - 0.5;
        const double r0 = h1 / h, r1 = h2 / h;
        // phi2 * D1 - phi3 * D2 with the differences a = (m0 - m1) / r0 and b = (m1 - m2) / r1
        const double curved = (phi2 * r0 - phi3) / (r0 + r1);
        const double wa = (phi2 + curved) / r0, wb = -curved / r1;
        terms[1].factor += wa;
        terms.push_back({wb - wa, denoised[1]});
        terms.push_back({-wb, denoised[2]});
      } else if (denoised.size() == 2) {
        const double w = phi2 * h / h1;
        terms[1].factor += w;
        terms.push_back({-w, denoised[1]});
      }
      const double spread = to * safe_sqrt(-std::expm1(-2 * eta * h)) * run.options.s_noise;
      if (spread > 0) terms.push_back({spread, run.noise_between(from, to)});
      x = linear_combination(run.ex, terms);
      h2 = h1;
      h1 = h;
    }
    run.report(i, from, x, denoised[0]);
  }
  return x;
}

}  // namespace rocm_sd
