// Weights of one DPM-Solver step: what the multistep and the singlestep samplers share.
#pragma once

#include "schedulers/sampler.hpp"

namespace rocm_sd {

// x at sigma `to` = x * x(from) + d0 * D0 + d1 * D1 + d2 * D2 + noise * z, where D0 is the prediction that
// the step starts from, D1 and D2 its first and second differences in units of the step, and z standard
// normal.
struct SolverWeights {
  double x = 1, d0 = 0;
  double d1 = 0;           // of order 2 in the Heun form, and of order 3
  double d1_midpoint = 0;  // of order 2 in the midpoint form
  double d2 = 0;
  double noise = 0;
};

// Lu et al., "DPM-Solver", 2022, equations 3.4 to 3.6 (predict_noise: D0 is epsilon) and "DPM-Solver++",
// 2022, equations 8 to 18 (D0 is the clean latents). eta 0: the ODE; more: the SDE, 1 the full one. to >= 0;
// at 0 only x and d0 count.
SolverWeights solver_weights(double from, double to, double eta, bool predict_noise);

// What a solver keeps of a prediction: the clean latents, or epsilon = (x - denoised) / sigma. [N,H,W,C] f32.
Tensor solver_output(SamplerRun& run, const Tensor& x, const Tensor& denoised, double sigma);

// The order of multistep's step i: as many predictions as there are, fewer towards the end where asked for.
int multistep_order(const SamplerRun& run, int i);

}  // namespace rocm_sd
