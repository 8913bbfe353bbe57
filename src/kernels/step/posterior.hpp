// sample_posterior: draws latents from the Gaussian that a VAE's encoder predicts.
#pragma once

#include "runtime/exec.hpp"

namespace rocm_sd {

// moments [N,H,W,2C] f32, bf16 or f16, contiguous: C means, then C log variances. noise [N,H,W,C] f32
// standard normal, contiguous, or null -> mean + exp(clamp(log variance, -30, 20) / 2) * noise, or the mean;
// [N,H,W,C] f32. Throws ShapeError if they do not fit. Kingma and Welling, "Auto-Encoding Variational
// Bayes", 2014, equation 10; the clamp is Diffusers' DiagonalGaussianDistribution's.
Tensor sample_posterior(Exec& ex, const Tensor& moments, const Tensor* noise);

}  // namespace rocm_sd
