// What sampler files share: step sizes.
#include "schedulers/samplers/common.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace rocm_sd {

AncestralStep ancestral_step(double from, double to, double eta) {
  if (eta == 0) return {to, 0};
  const double full = std::sqrt(to * to * (from * from - to * to)) / from;
  const double up = std::min(to, eta * full);
  return {safe_sqrt(to * to - up * up), up};
}

Tensor euler_step(Exec& ex, const Tensor& x, const Tensor& denoised, double from, double to) {
  return linear_combination(ex, {{to / from, x}, {1 - to / from, denoised}});
}

Tensor slope(Exec& ex, const Tensor& x, const Tensor& denoised, double sigma) {
  return linear_combination(ex, {{1 / sigma, x}, {-1 / sigma, denoised}});
}

void add_noise(SamplerRun& run, Tensor& x, double deviation) {
  if (deviation <= 0) return;
  x = linear_combination(run.ex, {{1, x}, {deviation * run.options.s_noise, run.noise()}});
}

NoiseLevel churn(SamplerRun& run, Tensor& x, int i) {
  const SamplerOptions& options = run.options;
  const NoiseLevel& level = run.levels[static_cast<size_t>(i)];
  if (options.s_churn <= 0 || level.sigma < options.s_tmin || level.sigma > options.s_tmax) return level;
  const double gamma = std::min(options.s_churn / run.steps(), std::sqrt(2.0) - 1);
  const double raised = level.sigma * (1 + gamma);
  const double added = safe_sqrt(raised * raised - level.sigma * level.sigma);
  add_noise(run, x, added);
  return level_of_sigma(run.noise_schedule, raised);
}

std::vector<double> adams_bashforth(std::span<const double> points, double to) {
  // Gauss-Legendre with four nodes: exact for the cubic that four points make.
  constexpr std::array<double, 4> kNodes = {-0.86113631159405257522, -0.33998104358485626480,
                                            0.33998104358485626480, 0.86113631159405257522};
  constexpr std::array<double, 4> kWeights = {0.34785484513745385737, 0.65214515486254614263,
                                              0.65214515486254614263, 0.34785484513745385737};
  const double middle = 0.5 * (points[0] + to), half = 0.5 * (to - points[0]);
  std::vector<double> out(points.size(), 0.0);
  for (size_t j = 0; j < points.size(); ++j)
    for (size_t node = 0; node < kNodes.size(); ++node) {
      const double at = middle + half * kNodes[node];
      double basis = 1;
      for (size_t k = 0; k < points.size(); ++k)
        if (k != j) basis *= (at - points[k]) / (points[j] - points[k]);
      out[j] += half * kWeights[node] * basis;
    }
  return out;
}

std::span<const double> fixed_adams_bashforth(int order) {
  static constexpr std::array<double, 4> kWeights[] = {{1},
                                                       {3.0 / 2, -1.0 / 2},
                                                       {23.0 / 12, -16.0 / 12, 5.0 / 12},
                                                       {55.0 / 24, -59.0 / 24, 37.0 / 24, -9.0 / 24}};
  assert(order >= 1 && order <= 4);
  return std::span(kWeights[order - 1]).first(static_cast<size_t>(order));
}

void push_history(std::deque<Tensor>& history, const Tensor& newest, int count) {
  history.push_front(newest);
  while (history.size() > static_cast<size_t>(count)) history.pop_back();
}

double next_alpha_bar(const SamplerRun& run, int i) {
  const int stride = run.plan.schedule.stride;
  if (stride == 0) return run.levels[static_cast<size_t>(i) + 1].alpha_bar;
  const int t = static_cast<int>(run.levels[static_cast<size_t>(i)].timestep) - stride;
  return t >= 0 ? run.noise_schedule.alphas_cumprod()[static_cast<size_t>(t)] : run.levels.back().alpha_bar;
}

}  // namespace rocm_sd
