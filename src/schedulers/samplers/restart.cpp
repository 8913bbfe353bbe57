// Restart: Heun over Karras sigmas that goes back up from sigma 0.1 to 2 with fresh noise, once or twice (Xu
// et al., "Restart Sampling for Improving Generative Processes", 2023, algorithm 2; A1111's choice of steps).
#include <algorithm>

#include "schedulers/samplers/common.hpp"

namespace rocm_sd {
namespace {

std::vector<double> karras(int count, double low, double high) {
  constexpr double kRho = 7;
  const double from = std::pow(high, 1 / kRho), to = std::pow(low, 1 / kRho);
  std::vector<double> out;
  for (int i = 0; i < count; ++i)
    out.push_back(
        std::pow(from + (count == 1 ? 0.0 : static_cast<double>(i) / (count - 1)) * (to - from), kRho));
  return out;
}

size_t nearest(const std::vector<double>& sigmas, double sigma) {
  const auto distance = [sigma](double s) { return std::fabs(s - sigma); };
  return static_cast<size_t>(std::ranges::min_element(sigmas, {}, distance) - sigmas.begin());
}

// The steps to make, as pairs of sigmas. A rise between two of them is a restart.
std::vector<std::pair<double, double>> plan_steps(const std::vector<double>& scheduled) {
  const int steps = static_cast<int>(scheduled.size()) - 1;
  std::vector<double> sigmas = scheduled;
  int length = 0, times = 0;
  if (steps >= 20) {
    length = steps >= 36 ? steps / 4 : 9;
    times = steps >= 36 ? 2 : 1;
    sigmas = karras(steps - length * times, scheduled[scheduled.size() - 2], scheduled.front());
    sigmas.push_back(scheduled.back());
  }
  std::vector<std::pair<double, double>> out;
  const size_t low = nearest(sigmas, 0.1), high = nearest(sigmas, 2);
  for (size_t i = 0; i + 1 < sigmas.size(); ++i) {
    out.emplace_back(sigmas[i], sigmas[i + 1]);
    if (times == 0 || i + 1 != low || high >= low) continue;
    const std::vector<double> again = karras(length + 1, sigmas[low], sigmas[high]);
    for (int t = 0; t < times; ++t)
      for (size_t k = 0; k + 1 < again.size(); ++k) out.emplace_back(again[k], again[k + 1]);
  }
  return out;
}

}  // namespace

Tensor sample_restart(SamplerRun& run, Tensor x) {
  const std::vector<std::pair<double, double>> steps = plan_steps(run.plan.schedule.sigmas());
  run.total = static_cast<int>(steps.size());
  double current = steps.front().first;
  for (int i = 0; i < run.total; ++i) {
    const auto [from, to] = steps[static_cast<size_t>(i)];
    if (from > current) {
      const double rise = safe_sqrt(from * from - current * current) * run.options.s_noise;
      x = linear_combination(run.ex, {{1, x}, {rise, run.noise()}});
    }
    const Tensor denoised = i == 0 ? run.denoise(x, 0) : run.denoise_at(x, from);
    Tensor end = euler_step(run.ex, x, denoised, from, to);
    if (to > 0) {
      const Tensor denoised_end = run.denoise_at(end, to);
      const double half = 0.5 * (to - from);
      end = linear_combination(
          run.ex,
          {{1 + half / from, x}, {-half / from, denoised}, {half / to, end}, {-half / to, denoised_end}});
    }
    x = end;
    current = to;
    run.report(i, from, x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
