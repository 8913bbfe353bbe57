#include "kernels/step/posterior.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

float value_at(const void* data, DType dtype, int64_t i) {
  return dtype == DType::kF32 ? static_cast<const float*>(data)[i]
                              : bf16_to_float(static_cast<const uint16_t*>(data)[i]);
}

}  // namespace

Tensor sample_posterior(Exec& ex, const Tensor& moments, const Tensor* noise) {
  const DType dtype = moments.dtype();
  require(moments.rank() == 4 && moments.dim(3) % 2 == 0 && moments.is_contiguous() &&
              (dtype == DType::kF32 || dtype == DType::kBF16),
          "sample_posterior: expected moments [N,H,W,2C] of f32 or bf16, got ", moments.shape(), " of ",
          dtype);
  const int64_t channels = moments.dim(3) / 2;
  const Shape shape{moments.dim(0), moments.dim(1), moments.dim(2), channels};
  if (noise)
    require(noise->shape() == shape && noise->dtype() == DType::kF32 && noise->is_contiguous(),
            "sample_posterior: expected noise ", shape, " of f32, got ", noise->shape(), " of ",
            noise->dtype());
  Tensor y = ex.alloc(shape, DType::kF32);
  const int64_t pixels = shape[0] * shape[1] * shape[2];
  const void* in = moments.data();
  const float* random = noise ? noise->as<float>() : nullptr;
  float* out = static_cast<float*>(y.data());
  const double traffic = static_cast<double>(moments.bytes() + y.bytes() + (noise ? noise->bytes() : 0));
  ex.launch({"sample_posterior", concat(dtype, " ", moments.shape()), 0, traffic}, [=] {
    for (int64_t p = 0; p < pixels; ++p)
      for (int64_t c = 0; c < channels; ++c) {
        const float mean = value_at(in, dtype, 2 * channels * p + c);
        const float log_variance =
            std::clamp(value_at(in, dtype, 2 * channels * p + channels + c), -30.0f, 20.0f);
        const int64_t i = channels * p + c;
        out[i] = random ? mean + std::exp(0.5f * log_variance) * random[i] : mean;
      }
  });
  return y;
}

}  // namespace rocm_sd
