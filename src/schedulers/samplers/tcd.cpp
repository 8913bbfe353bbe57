// TCD: strategic stochastic sampling (Zheng et al., "Trajectory Consistency Distillation", 2024, algorithm
// 4): to a timestep (1 - gamma) of the next one, then noise up to that. options.eta is gamma.
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_tcd(SamplerRun& run, Tensor x) {
  const double gamma = *run.options.eta;
  for (int i = 0; i < run.steps(); ++i) {
    const bool last = run.steps_left(i) == 1;
    const double from = run.levels[static_cast<size_t>(i)].alpha_bar;
    const NoiseLevel next =
        last ? level_of_timestep(run.noise_schedule, 0) : run.levels[static_cast<size_t>(i) + 1];
    const int landing = static_cast<int>(std::floor((1 - gamma) * next.timestep));
    const double landed = level_of_timestep(run.noise_schedule, landing).alpha_bar;
    const Tensor denoised = run.denoise(x, i);
    const double w = std::sqrt((1 - landed) / (1 - from));
    x = linear_combination(run.ex, {{w, x}, {std::sqrt(landed) - w * std::sqrt(from), denoised}});
    if (!last && gamma > 0) {
      const double ratio = next.alpha_bar / landed;
      const double spread = safe_sqrt(1 - ratio) * run.options.s_noise;
      x = linear_combination(run.ex, {{std::sqrt(ratio), x}, {spread, run.noise()}});
    }
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
