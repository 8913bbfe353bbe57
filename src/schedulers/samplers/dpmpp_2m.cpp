// DPM++ 2M and 3M: DPM-Solver++ multistep of order 1 to 3 (Lu et al., "DPM-Solver++", 2022, algorithm 2;
// order 3 as in their released solver), the midpoint or the Heun form of the second order.
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {
namespace {

// The order for step i: as many predictions as there are, fewer towards the end where asked for.
int step_order(const SamplerRun& run, int i) {
  const int left = run.steps() - i;
  if (run.sigma(i + 1) == 0 || run.sigma(i + 1) >= run.sigma(i)) return 1;
  int order = std::min(*run.options.order, i + 1);
  if (*run.options.lower_order_final && run.steps() < 15) order = std::min(order, left);
  return order;
}

}  // namespace

Tensor sample_dpmpp_2m(SamplerRun& run, Tensor x) {
  std::deque<Tensor> denoised;  // newest first
  const auto log_step = [&](int i) { return std::log(run.sigma(i) / run.sigma(i + 1)); };
  for (int i = 0; i < run.steps(); ++i) {
    push_history(denoised, run.denoise(x, i), 3);
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const int order = step_order(run, i);
    if (order == 1) {
      x = euler_step(run.ex, x, denoised[0], from, to);
    } else {
      const double h = log_step(i);
      const double phi1 = -std::expm1(-h);  // weight of the prediction
      const double phi2 = 1 - phi1 / h;     // of its first difference, by h
      const double r0 = log_step(i - 1) / h;
      if (order == 2) {
        const double w = (*run.options.solver == SolverType::kHeun ? phi2 : 0.5 * phi1) / r0;
        x = linear_combination(run.ex, {{to / from, x}, {phi1 + w, denoised[0]}, {-w, denoised[1]}});
      } else {
        const double phi3 = 0.5 - phi2 / h;  // of the second difference
        const double r1 = log_step(i - 2) / h;
        // D1 = a + r0 / (r0 + r1) * (a - b), D2 = (a - b) / (r0 + r1), a = (m0 - m1) / r0, b = (m1 - m2) / r1
        const double curved = (phi2 * r0 + phi3) / (r0 + r1);
        const double wa = (phi2 + curved) / r0, wb = -curved / r1;
        x = linear_combination(
            run.ex, {{to / from, x}, {phi1 + wa, denoised[0]}, {wb - wa, denoised[1]}, {-wb, denoised[2]}});
      }
    }
    run.report(i, from, x, denoised[0]);
  }
  return x;
}

}  // namespace rocm_sd
