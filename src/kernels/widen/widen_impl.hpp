// The problem that every implementation of widen takes, and the implementations.
#pragma once

#include "composable_kernels/fused/widen.hpp"
#include "kernels/problem.hpp"

namespace rocm_sd {

struct WidenProblem {
  const void* values = nullptr;  // [rows, depth]
  const float* scales = nullptr;
  void* y = nullptr;
  DType from = DType::kI8, dtype = DType::kF32;
  int64_t rows = 0, depth = 0;

  const char* op() const { return "widen"; }
  std::string describe() const;
  double flops() const { return static_cast<double>(rows * depth); }
  double bytes() const;
};

template <class From, class To>
WidenParams<From, To> widen_params(const WidenProblem& p, uint32_t groups) {
  return {static_cast<const From*>(p.values),
          p.scales,
          static_cast<To*>(p.y),
          fast_divide(static_cast<int32_t>(p.depth)),
          static_cast<int32_t>(p.rows * p.depth),
          groups};
}

// Calls body(From{}, To{}).
template <class Body>
void with_widen_types(DType from, DType to, const Body& body) {
  const auto with_from = [&](auto eight) {
    if (to == DType::kF16) return body(eight, Half{});
    if (to == DType::kBF16) return body(eight, Bf16{});
    body(eight, float{});
  };
  if (from == DType::kI8)
    with_from(Int8{});
  else
    with_from(Fp8{});
}

Refusal refuse_widen_body(const WidenProblem& problem);
Refusal supports_widen_gpu(const Exec& ex, const WidenProblem& problem);
void run_widen_gpu(Exec& ex, const WidenProblem& problem);
Refusal supports_widen_scalar(const Exec& ex, const WidenProblem& problem);
void run_widen_scalar(Exec& ex, const WidenProblem& problem);
void run_widen_ref(Exec& ex, const WidenProblem& problem);

}  // namespace rocm_sd
