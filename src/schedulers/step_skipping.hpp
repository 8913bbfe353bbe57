// Steps whose prediction is foretold by the steps before, in place of a call of the model (Jiang et al.,
// "SADA: Stability-guided Adaptive Diffusion Acceleration", ICML 2025, arXiv 2507.17135).
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "runtime/exec.hpp"
#include "schedulers/denoiser.hpp"

namespace rocm_sd {

// For samplers without noise of their own that call the model once in each step. Of the paper: the criterion
// (section 3.3) and the step-wise skip by the third-order extrapolation with the noise of the step before, as
// the released code does without its Lagrange interpolation (lagrange_term = 0). The interpolation of several
// steps in the second half is left out: on the demo model it cost 20 dB at the same number of calls
// (docs/howto/savings.md). So is the pruning of tokens.
//
// With z = x / sqrt(1 + sigma^2) and the increments h_i = dz/dsigma (sigma_{i+1} - sigma_i) along the ODE, a
// step i is stable if the mean of (z_{i+1} - w_{i+1}) (h_i - 2 h_{i-1} + h_{i-2}) is not negative, where
// w_{i+1} = z_i + 5/8 h_i + 3/4 h_{i-1} - 3/8 h_{i-2}; then step i + 1 is foretold: from w and the noise of
// i.
class StepSkipper {
 public:
  // sigmas: of the levels that the run visits, the last one's too. The shares of the steps between which
  // steps are skipped are the released code's for 50 steps. on_skip: told of
  // each step that is.
  explicit StepSkipper(std::vector<double> sigmas, std::function<void()> on_skip = {});

  // x [N,H,W,C] f32 at level i, as x0 + sigma * noise -> the clean latents foretold for it, or nothing: then
  // the model is to be called. The host waits for the values that decide.
  Tensor foretold(Exec& ex, const Tensor& x, int i);
  // What step i went on with, foretold or not. In the order of the steps, each after foretold() of it.
  void note(Exec& ex, const Tensor& x, const Tensor& clean, int i);

 private:
  bool is_stable(Exec& ex, const Tensor& z) const;

  std::vector<double> sigmas_;
  std::function<void()> on_skip_;
  std::deque<Tensor> increments_;  // h of the last steps, the newest first; at most three
  Tensor z_, noise_;               // of the last step
  int in_a_row_ = 0;
  bool foretold_ = false;  // the step at work
};

}  // namespace rocm_sd
