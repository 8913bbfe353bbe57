// The problems that the implementations of the step ops take, and the implementations.
#pragma once

#include "kernels/problem.hpp"
#include "kernels/step/step.hpp"

namespace rocm_sd {

struct LinearCombinationProblem {
  static constexpr int kMaxTerms = 12;
  const float* terms[kMaxTerms] = {};
  double factors[kMaxTerms] = {};
  int count = 0;
  float* y = nullptr;
  int64_t size = 0;  // elements

  const char* op() const { return "linear_combination"; }
  std::string describe() const { return concat(count, " terms of ", size); }
  double flops() const { return 2.0 * count * static_cast<double>(size); }
  double bytes() const { return 4.0 * (count + 1) * static_cast<double>(size); }
};

struct GuidanceProblem {
  const void* x = nullptr;  // [2, images, size]: unconditional, then conditional
  float* y = nullptr;       // [images, size]
  DType dtype = DType::kF32;
  int64_t images = 0, size = 0;
  double scale = 1, rescale = 0;

  const char* op() const { return "apply_guidance"; }
  std::string describe() const {
    return concat(dtype, " [2x", images, ",", size, "]", rescale > 0 ? " rescaled" : "");
  }
  double flops() const { return (rescale > 0 ? 12.0 : 3.0) * static_cast<double>(images * size); }
  double bytes() const {
    return static_cast<double>(images * size) * (2.0 * static_cast<double>(dtype_size(dtype)) + 4.0);
  }
};

struct CountNonfiniteProblem {
  const void* x = nullptr;
  int64_t* count = nullptr;
  DType dtype = DType::kF32;
  int64_t size = 0;

  const char* op() const { return "count_nonfinite"; }
  std::string describe() const { return concat(dtype, " of ", size); }
  double flops() const { return 0; }
  double bytes() const { return static_cast<double>(size) * static_cast<double>(dtype_size(dtype)); }
};

Refusal supports_linear_combination_gpu(const Exec& ex, const LinearCombinationProblem& problem);
void run_linear_combination_gpu(Exec& ex, const LinearCombinationProblem& problem);
void run_linear_combination_host(Exec& ex, const LinearCombinationProblem& problem);
void run_linear_combination_scalar(Exec& ex, const LinearCombinationProblem& problem);
void run_linear_combination_ref(Exec& ex, const LinearCombinationProblem& problem);

Refusal supports_guidance_gpu(const Exec& ex, const GuidanceProblem& problem);
void run_guidance_gpu(Exec& ex, const GuidanceProblem& problem);
void run_guidance_host(Exec& ex, const GuidanceProblem& problem);
void run_guidance_scalar(Exec& ex, const GuidanceProblem& problem);
void run_guidance_ref(Exec& ex, const GuidanceProblem& problem);

Refusal supports_count_nonfinite_gpu(const Exec& ex, const CountNonfiniteProblem& problem);
void run_count_nonfinite_gpu(Exec& ex, const CountNonfiniteProblem& problem);
void run_count_nonfinite_host(Exec& ex, const CountNonfiniteProblem& problem);
void run_count_nonfinite_scalar(Exec& ex, const CountNonfiniteProblem& problem);
void run_count_nonfinite_ref(Exec& ex, const CountNonfiniteProblem& problem);

}  // namespace rocm_sd
