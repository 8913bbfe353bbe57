// The problem that every implementation of resample takes, and the implementations.
#pragma once

#include "kernels/problem.hpp"
#include "kernels/resample/resample.hpp"

namespace rocm_sd {

struct ResampleProblem {
  const void* x = nullptr;  // [images, in_height, in_width, channels]
  void* y = nullptr;        // [images, height, width, channels]
  DType dtype = DType::kF32;
  int64_t images = 0, in_height = 0, in_width = 0, height = 0, width = 0, channels = 0;
  ResampleMode mode = ResampleMode::kNearest;

  const char* op() const { return "resample"; }
  std::string describe() const;
  double flops() const;
  double bytes() const;
};

void run_resample_host(Exec& ex, const ResampleProblem& problem);
Refusal supports_resample_gpu(const Exec& ex, const ResampleProblem& problem);
void run_resample_gpu(Exec& ex, const ResampleProblem& problem);
Refusal supports_resample_scalar(const Exec& ex, const ResampleProblem& problem);
void run_resample_scalar(Exec& ex, const ResampleProblem& problem);
void run_resample_ref(Exec& ex, const ResampleProblem& problem);

}  // namespace rocm_sd
