// DEIS: the last slopes are interpolated over log sigma and integrated across the step (Zhang and Chen, "Fast
// Sampling of Diffusion Models with Exponential Integrator", 2023, equation 15, log-rho polynomials; orders 1
// to 3).
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {
namespace {

// Antiderivatives, over s, of 1, log s and log(s)^2; their limit at 0 is 0.
double integral(int power, double s) {
  if (s == 0) return 0;
  const double l = std::log(s);
  if (power == 0) return s;
  return power == 1 ? s * (l - 1) : s * (l * l - 2 * l + 2);
}

// Weight of slope j of `points` (sigmas, newest first): the integral from points[0] to `to` of its Lagrange
// basis in log sigma.
double weight(const std::deque<double>& points, size_t j, double to) {
  const auto between = [&](int power) { return integral(power, to) - integral(power, points[0]); };
  if (points.size() == 1) return between(0);
  const auto other = [&](size_t k) { return std::log(points[(j + k) % points.size()]); };
  const double own = std::log(points[j]);
  if (points.size() == 2) return (between(1) - other(1) * between(0)) / (own - other(1));
  return (between(2) - (other(1) + other(2)) * between(1) + other(1) * other(2) * between(0)) /
         ((own - other(1)) * (own - other(2)));
}

}  // namespace

Tensor sample_deis(SamplerRun& run, Tensor x) {
  std::deque<Tensor> slopes;
  std::deque<double> sigmas;
  for (int i = 0; i < run.steps(); ++i) {
    const Tensor denoised = run.denoise(x, i);
    const double to = run.sigma(i + 1);
    int order = std::min(*run.options.order, i + 1);
    if (*run.options.lower_order_final && run.full_steps() < 15) order = std::min(order, run.steps_left(i));
    push_history(slopes, slope(run.ex, x, denoised, run.sigma(i)), *run.options.order);
    sigmas.push_front(run.sigma(i));
    sigmas.resize(slopes.size());
    std::deque<double> points(sigmas.begin(), sigmas.begin() + order);
    std::vector<Term> terms = {{1, x}};
    for (size_t j = 0; j < points.size(); ++j) terms.push_back({weight(points, j, to), slopes[j]});
    x = linear_combination(run.ex, terms);
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
