// PLMS: pseudo linear multistep of order 4 (Liu et al., "Pseudo Numerical Methods for Diffusion Models on
// Manifolds", 2022, equations 9 and 12), started by one step that is evaluated at both ends. Diffusers calls
// it PNDM, which may start with pseudo Runge-Kutta steps (equation 13) instead.
#include <algorithm>

#include "schedulers/samplers/common.hpp"

namespace rocm_sd {
namespace {

// What the model predicted, epsilon or v, recovered from the clean latents: the multistep formula averages
// that.
Tensor model_output(SamplerRun& run, const Tensor& x, const Tensor& denoised, double alpha_bar) {
  const double signal = std::sqrt(alpha_bar), noise = std::sqrt(1 - alpha_bar);
  if (run.prediction() == Prediction::kV)
    return linear_combination(run.ex, {{signal / noise, x}, {-1 / noise, denoised}});
  return linear_combination(run.ex, {{1 / noise, x}, {-signal / noise, denoised}});
}

// DDIM's step with the weighted outputs in place of the prediction.
Tensor transfer(SamplerRun& run, const Tensor& x, double from, double to, std::span<const double> weights,
                std::span<const Tensor> outputs) {
  const double signal = std::sqrt(from), noise = std::sqrt(1 - from);
  const double next_signal = std::sqrt(to), next_noise = std::sqrt(1 - to);
  // epsilon = output, or signal * output + noise * x; x0 = (x - noise * epsilon) / signal, or signal * x -
  // noise * output
  const bool v = run.prediction() == Prediction::kV;
  const double of_x = v ? next_signal * signal + next_noise * noise : next_signal / signal;
  const double of_output =
      v ? next_noise * signal - next_signal * noise : next_noise - next_signal * noise / signal;
  std::vector<Term> terms = {{of_x, x}};
  for (size_t k = 0; k < weights.size(); ++k) terms.push_back({of_output * weights[k], outputs[k]});
  return linear_combination(run.ex, terms);
}

// Diffusers' PNDMScheduler, call for call. Where strength or rounding makes the list of calls uneven, it
// takes x for being at other timesteps than it is; pictures of image to image depend on that.
Tensor replay_pndm(SamplerRun& run, Tensor x) {
  const Schedule& schedule = run.plan.schedule;
  const std::vector<int>& calls = schedule.calls;
  const std::vector<int>& first_calls = schedule.runge_kutta_calls;
  const int last = run.noise_schedule.train_steps() - 1;
  const auto alpha_bar = [&](int t) {
    if (t < 0) return run.levels.back().alpha_bar;
    return run.noise_schedule.alphas_cumprod()[static_cast<size_t>(std::min(t, last))];
  };
  std::deque<Tensor> history;  // newest first
  std::vector<Term> gathered;  // of a Runge-Kutta step
  Tensor start;                // x that a step of several calls sets out from
  const bool plms = first_calls.empty();
  run.total = static_cast<int>(calls.size()) - (plms && calls.size() > 1 ? 1 : 0);
  for (size_t call = 0; call < calls.size(); ++call) {
    const int t = calls[call];
    const Tensor denoised = run.denoise(x, level_of_timestep(run.noise_schedule, t));
    const Tensor output = model_output(run, x, denoised, alpha_bar(t));
    int from = t, to = t - schedule.stride;
    std::vector<Tensor> outputs = {output};
    std::vector<double> weights = {1};
    Tensor base = x;
    if (call < first_calls.size()) {
      to = t - (call % 2 == 0 ? schedule.stride / 2 : 0);
      from = first_calls[call / 4 * 4];
      if (call % 4 == 0) {
        push_history(history, output, 4);
        gathered.clear();
        start = x;
      }
      gathered.push_back({call % 4 == 0 || call % 4 == 3 ? 1.0 / 6 : 1.0 / 3, output});
      if (call % 4 == 3) outputs = {linear_combination(run.ex, gathered)};
      base = start;
    } else if (plms && call == 1) {
      to = t;
      from = t + schedule.stride;
      outputs.push_back(history[0]);
      weights = {0.5, 0.5};
      base = start;
    } else {
      if (call == 0) start = x;
      push_history(history, output, 4);
      outputs.assign(history.begin(), history.end());
      const std::span<const double> fixed = fixed_adams_bashforth(static_cast<int>(outputs.size()));
      weights.assign(fixed.begin(), fixed.end());
    }
    x = transfer(run, base, alpha_bar(from), alpha_bar(to), weights, outputs);
    const int step = static_cast<int>(call) - (plms && calls.size() > 1 ? 1 : 0);
    if (step >= 0) run.report(step, level_of_timestep(run.noise_schedule, t).sigma, x, denoised);
  }
  return x;
}

}  // namespace

Tensor sample_plms(SamplerRun& run, Tensor x) {
  if (!run.plan.schedule.calls.empty()) return replay_pndm(run, std::move(x));
  std::deque<Tensor> history;  // newest first
  for (int i = 0; i < run.steps(); ++i) {
    const double from = run.levels[static_cast<size_t>(i)].alpha_bar, to = next_alpha_bar(run, i);
    const Tensor denoised = run.denoise(x, i);
    push_history(history, model_output(run, x, denoised, from), 4);
    std::vector<Tensor> outputs(history.begin(), history.end());
    std::vector<double> weights;
    if (i == 0 && run.steps() > 1) {
      const double one = 1;
      Tensor end = transfer(run, x, from, to, {&one, 1}, outputs);
      const Tensor denoised_end = run.denoise(end, 1);
      outputs.push_back(model_output(run, end, denoised_end, run.levels[1].alpha_bar));
      weights = {0.5, 0.5};
    } else {
      const std::span<const double> fixed = fixed_adams_bashforth(static_cast<int>(outputs.size()));
      weights.assign(fixed.begin(), fixed.end());
    }
    x = transfer(run, x, from, to, weights, outputs);
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
