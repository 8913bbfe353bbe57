// DPM++ 2M v2: DPM++ 2M with a calmer second order, as stable-diffusion.cpp has it after Birch-san's change
// to k-diffusion. The ratio of the two last steps counts as 1 or more, whichever of them is the longer, and
// the prediction's weight is that of a step of their mean length. The weights of x and of the prediction so
// add up to 1 only where steps are of equal length in log sigma; elsewhere the method leaves part of its
// order behind.
#include "schedulers/samplers/common.hpp"

namespace rocm_sd {

Tensor sample_dpmpp_2m_v2(SamplerRun& run, Tensor x) {
  std::deque<Tensor> denoised;  // newest first
  for (int i = 0; i < run.steps(); ++i) {
    push_history(denoised, run.denoise(x, i), 2);
    const double from = run.sigma(i), to = run.sigma(i + 1);
    if (i == 0 || to == 0 || to >= from) {
      x = euler_step(run.ex, x, denoised[0], from, to);
    } else {
      const double h = std::log(from / to), last = std::log(run.sigma(i - 1) / from);
      const double ratio = std::max(h, last) / std::min(h, last);
      const double phi = -std::expm1(-0.5 * (h + last));
      const double w = phi / (2 * ratio);
      x = linear_combination(run.ex, {{to / from, x}, {phi + w, denoised[0]}, {-w, denoised[1]}});
    }
    run.report(i, from, x, denoised[0]);
  }
  return x;
}

}  // namespace rocm_sd
