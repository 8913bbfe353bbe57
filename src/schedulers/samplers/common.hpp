// What sampler files share: step sizes, and the list of their functions.
#pragma once

#include <cmath>
#include <deque>

#include "kernels/step/step.hpp"
#include "schedulers/sampler.hpp"

namespace rocm_sd {

// An ancestral step goes to sigma `down` without noise, then adds noise of standard deviation `up`, so that
// down^2 + up^2 = to^2 at eta <= 1 (Song et al., "Denoising Diffusion Implicit Models", 2021, equation 16, in
// terms of sigma). eta 0 adds none.
struct AncestralStep {
  double down = 0, up = 0;
};
AncestralStep ancestral_step(double from, double to, double eta);

// (to / from) * x + (1 - to / from) * denoised: Euler's step from sigma `from` to `to`, which is also the
// first-order exponential integrator of DPM-Solver++ (Lu et al. 2022, equation 10) in this space.
Tensor euler_step(Exec& ex, const Tensor& x, const Tensor& denoised, double from, double to);

// (x - denoised) / sigma, the slope dx/dsigma (Karras et al. 2022, equation 3).
Tensor slope(Exec& ex, const Tensor& x, const Tensor& denoised, double sigma);

// Fresh noise of this standard deviation, times options.s_noise; none is drawn where it is 0.
void add_noise(SamplerRun& run, Tensor& x, double deviation);

// Karras et al. 2022, algorithm 2: raises x from levels[i] to a noisier sigma by options.s_churn and returns
// the level that x then has.
NoiseLevel churn(SamplerRun& run, Tensor& x, int i);

// Weights of slopes at points[0..order) (newest first) whose Lagrange polynomial is integrated from points[0]
// to `to`: variable-step Adams-Bashforth. At most 4 points.
std::vector<double> adams_bashforth(std::span<const double> points, double to);

// Weights of four, three, two or one equally spaced slopes, newest first (fixed-step Adams-Bashforth).
std::span<const double> fixed_adams_bashforth(int order);

// Keeps the newest `count` tensors, newest first.
void push_history(std::deque<Tensor>& history, const Tensor& newest, int count);

// sqrt(max(0, x)): differences of squares may come out a rounding below zero.
inline double safe_sqrt(double x) { return x > 0 ? std::sqrt(x) : 0; }

// One per file of this folder. x is in the row's space at levels[0]; the result is at the last level.
Tensor sample_euler(SamplerRun& run, Tensor x);
Tensor sample_euler_ancestral(SamplerRun& run, Tensor x);
Tensor sample_heun(SamplerRun& run, Tensor x);
Tensor sample_dpm2(SamplerRun& run, Tensor x);
Tensor sample_dpm2_ancestral(SamplerRun& run, Tensor x);
Tensor sample_lms(SamplerRun& run, Tensor x);
Tensor sample_ipndm(SamplerRun& run, Tensor x);
Tensor sample_dpmpp_2s_ancestral(SamplerRun& run, Tensor x);
Tensor sample_dpmpp_singlestep(SamplerRun& run, Tensor x);
Tensor sample_dpmpp_singlestep_sde(SamplerRun& run, Tensor x);
Tensor sample_sa_solver(SamplerRun& run, Tensor x);
Tensor sample_dpmpp_2m(SamplerRun& run, Tensor x);
Tensor sample_dpmpp_2m_v2(SamplerRun& run, Tensor x);
Tensor sample_dpmpp_sde(SamplerRun& run, Tensor x);
Tensor sample_dpmpp_2m_sde(SamplerRun& run, Tensor x);
Tensor sample_dpmpp_3m_sde(SamplerRun& run, Tensor x);
Tensor sample_dpm_fast(SamplerRun& run, Tensor x);
Tensor sample_restart(SamplerRun& run, Tensor x);
Tensor sample_res_multistep(SamplerRun& run, Tensor x);
Tensor sample_deis(SamplerRun& run, Tensor x);
Tensor sample_unipc(SamplerRun& run, Tensor x);
Tensor sample_ddim(SamplerRun& run, Tensor x);
Tensor sample_ddpm(SamplerRun& run, Tensor x);
Tensor sample_plms(SamplerRun& run, Tensor x);
Tensor sample_lcm(SamplerRun& run, Tensor x);
Tensor sample_tcd(SamplerRun& run, Tensor x);
Tensor sample_euler_cfg_pp(SamplerRun& run, Tensor x);
Tensor sample_euler_ancestral_cfg_pp(SamplerRun& run, Tensor x);
Tensor sample_dpmpp_2m_cfg_pp(SamplerRun& run, Tensor x);

// alpha_bar that a step from levels[i] leads to: the next level's, or by Schedule::stride.
double next_alpha_bar(const SamplerRun& run, int i);

}  // namespace rocm_sd
