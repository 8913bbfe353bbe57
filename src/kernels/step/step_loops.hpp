// The host's loops of the step ops. Compiled per instruction set (step_loops_isa.cpp); nothing here may have
// an inline function.
#pragma once

#include <cstdint>

namespace rocm_sd {

struct StepKernels {
  // y[i] = sum of factors[t] * terms[t][first + i], in double, rounded once.
  void (*combine)(const float* const* terms, const double* factors, int count, int64_t first, int64_t size,
                  float* y);
  // y[i] = factor * (a[i] + scale * (b[i] - a[i])) in double; a and b bf16 or f32.
  void (*guide)(const void* a, const void* b, bool bf16, double scale, double factor, int64_t size, float* y);
  // Adds to sums[0] the values, sums[1] the squares of value - mean[0], both of the guided result; sums[2]
  // and sums[3] the same of b with mean[1].
  void (*guide_moments)(const void* a, const void* b, bool bf16, double scale, const double* mean,
                        int64_t size, double* sums);
  int64_t (*count_nonfinite)(const void* x, bool bf16, int64_t size);
};

namespace isa_baseline {
extern const StepKernels kStepKernels;
}
namespace isa_v3 {
extern const StepKernels kStepKernels;
}
namespace isa_v4 {
extern const StepKernels kStepKernels;
}

}  // namespace rocm_sd
