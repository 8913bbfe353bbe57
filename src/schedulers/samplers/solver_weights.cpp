// Weights of one DPM-Solver step.
#include "schedulers/samplers/solver_weights.hpp"

#include <cmath>

#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

SolverWeights solver_weights(double from, double to, double eta, bool predict_noise) {
  const double h = std::log(from / to);
  SolverWeights w;
  if (predict_noise) {
    const double grown = std::expm1(h), twice = eta > 0 ? 2 : 1;
    w.d0 = to == 0 ? -from : -twice * to * grown;
    if (h > 0 && to > 0) {
      w.d1 = -twice * to * (grown / h - 1);
      w.d1_midpoint = 0.5 * w.d0;
      w.d2 = -twice * to * ((grown - h) / (h * h) - 0.5);
    }
    if (eta > 0) w.noise = to * safe_sqrt(std::expm1(2 * h));
    return w;
  }
  const double whole = h * (1 + eta);
  w.x = eta > 0 ? std::exp(-whole) : to / from;
  w.d0 = -std::expm1(-whole);
  if (h > 0 && to > 0) {
    w.d1 = 1 - w.d0 / whole;
    w.d1_midpoint = 0.5 * w.d0;
    // The SDE's sign before 1/2 is that of Diffusers' released solver.
    w.d2 = eta > 0 ? -w.d1 / whole - 0.5 : 0.5 - w.d1 / whole;
  }
  w.noise = to * safe_sqrt(-std::expm1(-2 * eta * h));
  return w;
}

Tensor solver_output(SamplerRun& run, const Tensor& x, const Tensor& denoised, double sigma) {
  return run.options.predict_noise ? slope(run.ex, x, denoised, sigma) : denoised;
}

int multistep_order(const SamplerRun& run, int i) {
  const int left = run.steps_left(i);
  if (run.sigma(i + 1) == 0 || run.sigma(i + 1) >= run.sigma(i)) return 1;
  if (left == 1 && run.options.euler_at_final) return 1;
  int order = std::min(*run.options.order, i + 1);
  if (*run.options.lower_order_final && run.full_steps() < 15) order = std::min(order, left);
  return order;
}

}  // namespace rocm_sd
