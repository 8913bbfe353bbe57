// DDIM: Song et al., "Denoising Diffusion Implicit Models", 2021, equations 12 and 16, variance preserving.
// eta 1 is DDPM's variance.
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_ddim(SamplerRun& run, Tensor x) {
  for (int i = 0; i < run.steps(); ++i) {
    const double from = run.levels[static_cast<size_t>(i)].alpha_bar, to = next_alpha_bar(run, i);
    Tensor raw;  // epsilon stays the model's where the clean latents are clamped
    const Tensor denoised = run.denoise(x, run.levels[static_cast<size_t>(i)], &raw);
    const double variance = (1 - to) / (1 - from) * (1 - from / to);
    const double spread = *run.options.eta * safe_sqrt(variance);
    // epsilon = (x - sqrt(from) * raw) / sqrt(1 - from)
    const double w = safe_sqrt(1 - to - spread * spread) / std::sqrt(1 - from);
    std::vector<Term> terms = {{w, x}, {std::sqrt(to), denoised}, {-w * std::sqrt(from), raw}};
    if (spread > 0) terms.push_back({spread * run.options.s_noise, run.noise()});
    x = linear_combination(run.ex, terms);
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
