// SA-Solver: a stochastic Adams-Bashforth predictor and Adams-Moulton corrector over log sigma (Xue et al.,
// "SA-Solver: Stochastic Adams Solver for Fast Sampling of Diffusion Models", 2023, equations 14 and 17). As
// in Diffusers, tau is 1 at timesteps 200 to 800 and 0 elsewhere, and order 2 of data prediction has the
// released code's correction.
#include <algorithm>

#include "schedulers/samplers/common.hpp"
#include "schedulers/samplers/solver_weights.hpp"

namespace rocm_sd {
namespace {

// One step between sigmas.
struct Stage {
  double from = 0, to = 0, tau = 0;
};

// Integral of u^power * e^(rate * u) over -h..0.
double moment(int power, double rate, double h) {
  if (power == 0) return -std::expm1(-rate * h) / rate;
  return -std::pow(-h, power) * std::exp(-rate * h) / rate - power / rate * moment(power - 1, rate, h);
}

// Coefficients by rising power of the Lagrange polynomial that is 1 at points[own] and 0 at the others.
std::vector<double> lagrange(std::span<const double> points, size_t own) {
  std::vector<double> out = {1};
  for (size_t k = 0; k < points.size(); ++k) {
    if (k == own) continue;
    const double scale = 1 / (points[own] - points[k]);
    std::vector<double> product(out.size() + 1, 0.0);
    for (size_t p = 0; p < out.size(); ++p) {
      product[p + 1] += out[p] * scale;
      product[p] -= out[p] * points[k] * scale;
    }
    out = std::move(product);
  }
  return out;
}

// x at stage.to, with outputs[k] the prediction at sigmas[k], k < order.
Tensor advance(SamplerRun& run, const Stage& stage, const Tensor& x, std::span<const Tensor> outputs,
               std::span<const double> sigmas, size_t order, const Tensor& noise, bool corrects) {
  const double h = std::log(stage.from / stage.to), squared = stage.tau * stage.tau;
  const bool data = !run.options.predict_noise;
  if (stage.to == 0)  // the clean latents
    return data ? outputs[0] : linear_combination(run.ex, {{1, x}, {-stage.from, outputs[0]}});
  const double rate = data ? 1 + squared : -1;
  std::vector<double> points;  // log(alpha / sigma) from the end of the step
  for (size_t k = 0; k < order; ++k) points.push_back(std::log(stage.to / sigmas[k]));
  std::vector<Term> terms = {{data ? std::exp(-squared * h) * stage.to / stage.from : 1.0, x}};
  for (size_t k = 0; k < order; ++k) {
    double weight = 0;
    const std::vector<double> polynomial = lagrange(points, k);
    for (size_t p = 0; p < polynomial.size(); ++p)
      if (h > 0) weight += polynomial[p] * moment(static_cast<int>(p), rate, h);
    terms.push_back({data ? rate * weight : -(1 + squared) * stage.to * weight, outputs[k]});
  }
  if (data && order == 2 && h > 0) {
    const double rest = (h * rate - 1 + std::exp(-rate * h)) / (rate * rate);
    const double shift =
        corrects ? rate * (h / 2 - rest / h) : rate * (h * h / 2 - rest) / std::log(sigmas[1] / sigmas[0]);
    terms[1].factor += shift;
    terms[2].factor -= shift;
  }
  const double spread = data ? stage.to * safe_sqrt(-std::expm1(-2 * squared * h))
                             : stage.tau * stage.to * safe_sqrt(std::expm1(2 * h));
  if (spread > 0) terms.push_back({spread * run.options.s_noise, noise});
  return linear_combination(run.ex, terms);
}

double tau_of(const SamplerRun& run, int i) {
  const NoiseLevel& level = run.levels[static_cast<size_t>(i)];
  const double t = run.noise_schedule.log_sigma_timesteps()
                       ? run.noise_schedule.interpolated_timestep(level.sigma)
                       : level.timestep;
  return t >= 200 && t <= 800 ? *run.options.eta : 0;
}

}  // namespace

Tensor sample_sa_solver(SamplerRun& run, Tensor x) {
  const int predictor = *run.options.order, corrector = run.options.corrector_order.value_or(predictor);
  const int kept = std::max(predictor, corrector - 1);
  std::deque<Tensor> outputs;  // newest first
  std::deque<double> sigmas;
  Tensor start, noise;  // of the last step
  Stage stage;
  for (int i = 0; i < run.steps(); ++i) {
    const Tensor denoised = run.denoise(x, i);
    const int left = run.steps_left(i);
    push_history(outputs, solver_output(run, x, denoised, run.sigma(i)), kept + 1);
    sigmas.push_front(run.sigma(i));
    sigmas.resize(outputs.size());
    const std::vector<Tensor> known(outputs.begin(), outputs.end());
    const std::vector<double> at(sigmas.begin(), sigmas.end());
    const bool lower = *run.options.lower_order_final;
    if (i > 0) {
      const int order = std::min(lower ? std::min(corrector, left + 2) : corrector, std::min(i, kept) + 1);
      x = advance(run, stage, start, known, at, static_cast<size_t>(order), noise, true);
    }
    int order = std::min(lower ? std::min(predictor, left) : predictor, std::min(i, kept) + 1);
    if (run.sigma(i + 1) == 0) order = 1;
    start = x;
    if (*run.options.eta > 0) noise = run.noise();
    stage = {run.sigma(i), run.sigma(i + 1), tau_of(run, i)};
    x = advance(run, stage, start, known, at, static_cast<size_t>(order), noise, false);
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
