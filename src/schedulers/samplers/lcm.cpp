// LCM: multistep consistency sampling (Luo et al., "Latent Consistency Models", 2023, algorithm 3): the clean
// latents by the student's boundary condition, then fresh noise of the next level.
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_lcm(SamplerRun& run, Tensor x) {
  constexpr double kSigmaData = 0.5;
  for (int i = 0; i < run.steps(); ++i) {
    const double t = run.options.timestep_scaling * run.levels[static_cast<size_t>(i)].timestep;
    const double norm = t * t + kSigmaData * kSigmaData;
    const Tensor predicted = run.denoise(x, i);
    const Tensor denoised =
        linear_combination(run.ex, {{t / std::sqrt(norm), predicted}, {kSigmaData * kSigmaData / norm, x}});
    x = denoised;
    if (run.steps_left(i) > 1) {
      const double to = run.levels[static_cast<size_t>(i) + 1].alpha_bar;
      const double spread = std::sqrt(1 - to) * run.options.s_noise;
      x = linear_combination(run.ex, {{std::sqrt(to), denoised}, {spread, run.noise()}});
    }
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
