// CFG++ (Chung et al., "CFG++: Manifold-Constrained Classifier Free Guidance", 2024): the step leads to the
// guided clean latents, but the noise that is added back is that of the unconditional prediction. Forms as in
// ComfyUI (euler_cfg_pp, euler_ancestral_cfg_pp, dpmpp_2m_cfg_pp). Scales are small: 0.5 to 2.
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {
namespace {

// x0 + down * (x - unconditional x0) / from
Tensor plus_plus_step(Exec& ex, const Tensor& x, const Tensor& denoised, const Tensor& negative, double from,
                      double down) {
  return linear_combination(ex, {{1, denoised}, {down / from, x}, {-down / from, negative}});
}

Tensor sample_euler_plus_plus(SamplerRun& run, Tensor x, double eta) {
  for (int i = 0; i < run.steps(); ++i) {
    Tensor negative;
    const Tensor denoised = run.denoise(x, run.levels[static_cast<size_t>(i)], nullptr, &negative);
    const auto [down, up] = ancestral_step(run.sigma(i), run.sigma(i + 1), eta);
    x = plus_plus_step(run.ex, x, denoised, negative, run.sigma(i), down);
    add_noise(run, x, up);
    run.report(i, run.sigma(i), x, denoised);
  }
  return x;
}

}  // namespace

Tensor sample_euler_cfg_pp(SamplerRun& run, Tensor x) { return sample_euler_plus_plus(run, std::move(x), 0); }
Tensor sample_euler_ancestral_cfg_pp(SamplerRun& run, Tensor x) {
  return sample_euler_plus_plus(run, std::move(x), *run.options.eta);
}

// DPM++ 2M with the unconditional prediction in place of the guided one but for where the step leads to.
Tensor sample_dpmpp_2m_cfg_pp(SamplerRun& run, Tensor x) {
  Tensor last;  // the unconditional prediction of the step before
  for (int i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1), ratio = to / from;  // ratio = exp(-h)
    Tensor negative;
    const Tensor denoised = run.denoise(x, run.levels[static_cast<size_t>(i)], nullptr, &negative);
    std::vector<Term> terms = {{1, denoised}, {ratio, x}, {-ratio, negative}};
    if (last && to > 0) {
      const double h = std::log(from / to), r = std::log(run.sigma(i - 1) / from) / h;
      const double extra = (1 - ratio) / (2 * r);  // -expm1(-h) / (2 r)
      terms[0].factor += extra;
      terms.push_back({-extra, last});
    }
    last = negative;
    x = linear_combination(run.ex, terms);
    run.report(i, from, x, denoised);
  }
  return x;
}

}  // namespace rocm_sd
