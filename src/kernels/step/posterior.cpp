#include "kernels/step/posterior.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/reference.hpp"
#include "kernels/step/step_impl.hpp"

namespace rocm_sd {
namespace {

void posterior_ref(const PosteriorProblem& p) {
  for (int64_t pixel = 0; pixel < p.pixels; ++pixel)
    for (int64_t c = 0; c < p.channels; ++c) {
      const int64_t i = p.channels * pixel + c, at = 2 * p.channels * pixel + c;
      const double mean = ref::load(p.moments, p.dtype, at);
      const double log_variance = std::clamp(ref::load(p.moments, p.dtype, at + p.channels), -30.0, 20.0);
      const double noise = p.noise ? static_cast<double>(p.noise[i]) : 0;
      p.y[i] = static_cast<float>(p.noise ? mean + std::exp(0.5 * log_variance) * noise : mean);
    }
}
void run_posterior_ref(Exec& ex, const PosteriorProblem& p) { launch_problem(ex, p, "ref", posterior_ref); }

const ImplList<PosteriorProblem> kPosterior = {"sample_posterior",
                                               {
                                                   {"gpu", supports_posterior_gpu, run_posterior_gpu},
                                                   {"scalar", supports_host, run_posterior_scalar},
                                                   {"ref", supports_host, run_posterior_ref},
                                               }};

}  // namespace

Tensor sample_posterior(Exec& ex, const Tensor& moments, const Tensor* noise) {
  const DType dtype = moments.dtype();
  require(
      moments.rank() == 4 && moments.dim(3) % 2 == 0 && moments.is_contiguous() && is_activation_type(dtype),
      "sample_posterior: expected moments [N,H,W,2C] of f32, bf16 or f16, got ", moments.shape(), " of ",
      dtype);
  const int64_t channels = moments.dim(3) / 2;
  const Shape shape{moments.dim(0), moments.dim(1), moments.dim(2), channels};
  if (noise)
    require(noise->shape() == shape && noise->dtype() == DType::kF32 && noise->is_contiguous(),
            "sample_posterior: expected noise ", shape, " of f32, got ", noise->shape(), " of ",
            noise->dtype());
  const Tensor y = ex.alloc(shape, DType::kF32);
  const PosteriorProblem problem{.moments = moments.data(),
                                 .noise = noise ? noise->as<float>() : nullptr,
                                 .y = y.as<float>(),
                                 .dtype = dtype,
                                 .pixels = shape[0] * shape[1] * shape[2],
                                 .channels = channels};
  select(ex, kPosterior, problem).run(ex, problem);
  return y;
}

}  // namespace rocm_sd
