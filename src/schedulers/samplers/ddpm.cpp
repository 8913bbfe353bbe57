// DDPM: Ho et al., "Denoising Diffusion Probabilistic Models", 2020, equations 6 and 7, between any two
// levels; the smaller variance, or section 3.2's larger one, with which the last step draws noise, too.
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_ddpm(SamplerRun& run, Tensor x) {
  for (int i = 0; i < run.steps(); ++i) {
    const NoiseLevel& level = run.levels[static_cast<size_t>(i)];
    const double from = level.alpha_bar, to = run.levels[static_cast<size_t>(i) + 1].alpha_bar;
    const double kept = from / to;  // alpha of the step
    const Tensor denoised = run.denoise(x, i);
    std::vector<Term> terms = {{std::sqrt(kept) * (1 - to) / (1 - from), x},
                               {std::sqrt(to) * (1 - kept) / (1 - from), denoised}};
    const double variance =
        run.options.large_variance ? (level.timestep > 0 ? 1 - kept : 0) : (1 - to) / (1 - from) * (1 - kept);
    if (variance > 0 && *run.options.eta > 0)
      terms.push_back({*run.options.eta * std::sqrt(variance) * run.options.s_noise, run.noise()});
    x = linear_combination(run.ex, terms);
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
