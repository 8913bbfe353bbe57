// DPM fast: DPM-Solver singlestep of orders 3, 2 and 1 over equal steps in log sigma, as many UNet calls as
// steps were asked for (Lu et al., "DPM-Solver", 2022, section 3.3 and algorithms 1 to 3), ancestral by
// k-diffusion's eta. Ends at the schedule's last sigma above 0; of its other levels only the first counts.
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {
namespace {

// One step of x from sigma `from` to `to`; denoised belongs to x.
Tensor solver_step(SamplerRun& run, const Tensor& x, const Tensor& denoised, double from, double to,
                   int order) {
  if (order == 1) return euler_step(run.ex, x, denoised, from, to);
  const double h = std::log(from / to);
  const Tensor epsilon = slope(run.ex, x, denoised, from);
  // sigma(from * e^{-r h}) and x - sigma * expm1(r h) * epsilon are first-order steps.
  const double r1 = order == 2 ? 0.5 : 1.0 / 3;
  const double s1 = from * std::exp(-r1 * h);
  Tensor u1 = euler_step(run.ex, x, denoised, from, s1);
  const Tensor epsilon1 = slope(run.ex, u1, run.denoise_at(u1, s1), s1);
  const double whole = to * std::expm1(h);
  if (order == 2) {
    const double w = whole / (2 * r1);
    return linear_combination(run.ex, {{1, x}, {w - whole, epsilon}, {-w, epsilon1}});
  }
  const double r2 = 2.0 / 3;
  const double s2 = from * std::exp(-r2 * h);
  const double curve2 = s2 * (r2 / r1) * (std::expm1(r2 * h) / (r2 * h) - 1);
  Tensor u2 =
      linear_combination(run.ex, {{1, x}, {curve2 - s2 * std::expm1(r2 * h), epsilon}, {-curve2, epsilon1}});
  const Tensor epsilon2 = slope(run.ex, u2, run.denoise_at(u2, s2), s2);
  const double curve3 = to / r2 * (std::expm1(h) / h - 1);
  return linear_combination(run.ex, {{1, x}, {curve3 - whole, epsilon}, {-curve3, epsilon2}});
}

}  // namespace

Tensor sample_dpm_fast(SamplerRun& run, Tensor x) {
  const int calls = run.steps();
  const double high = run.sigma(0);
  const double low = run.sigma(calls) > 0 ? run.sigma(calls) : run.sigma(calls - 1);
  if (calls == 1 || low >= high) {  // one level: nothing to step to but the end
    const Tensor denoised = run.denoise(x, 0);
    x = euler_step(run.ex, x, denoised, high, run.sigma(calls));
    run.report(0, high, x, denoised);
    return x;
  }
  std::vector<int> orders(static_cast<size_t>(calls / 3 + 1), 3);
  if (calls % 3 == 0) {
    orders.back() = 1;
    orders[orders.size() - 2] = 2;
  } else {
    orders.back() = calls % 3;
  }
  run.total = static_cast<int>(orders.size());
  const double stride = std::log(low / high) / run.total;
  for (int i = 0; i < run.total; ++i) {
    const double from = high * std::exp(i * stride), to = high * std::exp((i + 1) * stride);
    // Ancestral, but never below the end of the range.
    const double down = std::max(ancestral_step(from, to, *run.options.eta).down, low);
    const double up = safe_sqrt(to * to - down * down);
    const Tensor denoised = i == 0 ? run.denoise(x, 0) : run.denoise_at(x, from);
    x = solver_step(run, x, denoised, from, down, orders[static_cast<size_t>(i)]);
    add_noise(run, x, up);
    run.report(i, from, x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
