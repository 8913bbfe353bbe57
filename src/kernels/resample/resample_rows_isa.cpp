// The host's loop of resample, compiled once per instruction set.
#include "kernels/resample/resample_rows.hpp"
#include "kernels/simd.hpp"

namespace rocm_sd::ROCM_SD_ISA {
namespace {

template <class X, class Y>
void sum(const X* x, int64_t stride, const float* weights, int64_t count, int64_t size, Y* y) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    Vec total{};
    for (int64_t j = 0; j < count; ++j) total += weights[j] * load(x + j * stride + i);
    store(y + i, total);
  }
  if (const int64_t rest = size - i; rest > 0) {
    Vec total{};
    for (int64_t j = 0; j < count; ++j) total += weights[j] * load_part(x + j * stride + i, rest);
    store_part(y + i, total, rest);
  }
}

template <class X>
void sum_from(const X* x, int64_t stride, const float* weights, int64_t count, int64_t size, void* y,
              bool y_bf16) {
  y_bf16 ? sum(x, stride, weights, count, size, static_cast<uint16_t*>(y))
         : sum(x, stride, weights, count, size, static_cast<float*>(y));
}

void weighted_sum(const void* x, bool x_bf16, int64_t stride, const float* weights, int64_t count,
                  int64_t size, void* y, bool y_bf16) {
  x_bf16 ? sum_from(static_cast<const uint16_t*>(x), stride, weights, count, size, y, y_bf16)
         : sum_from(static_cast<const float*>(x), stride, weights, count, size, y, y_bf16);
}

}  // namespace

extern const ResampleKernels kResampleKernels;
const ResampleKernels kResampleKernels = {weighted_sum};

}  // namespace rocm_sd::ROCM_SD_ISA
