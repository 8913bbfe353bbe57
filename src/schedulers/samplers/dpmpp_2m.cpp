// DPM++ 2M, 3M and 2M SDE: DPM-Solver++ multistep of order 1 to 3 (Lu et al., "DPM-Solver++", 2022, algorithm
// 2; order 3 as in their released solver), the midpoint or the Heun form of the second order; with eta, the
// SDE of section 6, equation 18; with predict_noise, DPM-Solver (Lu et al., "DPM-Solver", 2022).
#include "schedulers/samplers/common.hpp"
#include "schedulers/samplers/solver_weights.hpp"

namespace rocm_sd {
namespace {

Tensor sample_multistep(SamplerRun& run, Tensor x, double eta) {
  const bool heun = *run.options.solver == SolverType::kHeun;
  std::deque<Tensor> outputs;  // newest first
  const auto log_step = [&](int i) { return std::log(run.sigma(i) / run.sigma(i + 1)); };
  for (int i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Tensor denoised = run.denoise(x, i);
    push_history(outputs, solver_output(run, x, denoised, from), 3);
    const SolverWeights w = solver_weights(from, to, eta, run.options.predict_noise);
    std::vector<Term> terms = {{w.x, x}, {w.d0, outputs[0]}};
    const int order = multistep_order(run, i);
    if (order >= 2) {
      const double h = log_step(i), r0 = log_step(i - 1) / h;
      double a = (heun ? w.d1 : w.d1_midpoint) / r0, b = 0;  // of m0 - m1 and m1 - m2
      if (order == 3) {
        // D1 = A + r0 / (r0 + r1) * (A - B), D2 = (A - B) / (r0 + r1), A = (m0 - m1) / r0, B = (m1 - m2) / r1
        const double r1 = log_step(i - 2) / h;
        const double curved = (w.d1 * r0 + w.d2) / (r0 + r1);
        a = (w.d1 + curved) / r0;
        b = -curved / r1;
      }
      terms[1].factor += a;
      terms.push_back({b - a, outputs[1]});
      if (order == 3) terms.push_back({-b, outputs[2]});
    }
    if (w.noise > 0) terms.push_back({w.noise * run.options.s_noise, run.noise_between(from, to)});
    x = linear_combination(run.ex, terms);
    run.report(i, from, x, denoised);
  }
  return x;
}

}  // namespace

Tensor sample_dpmpp_2m(SamplerRun& run, Tensor x) { return sample_multistep(run, std::move(x), 0); }
Tensor sample_dpmpp_2m_sde(SamplerRun& run, Tensor x) {
  return sample_multistep(run, std::move(x), *run.options.eta);
}

}  // namespace rocm_sd
