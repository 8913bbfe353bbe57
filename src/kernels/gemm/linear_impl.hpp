// What the implementations of linear share: the checked problem and the list's functions.
#pragma once

#include "kernels/gemm/linear.hpp"
#include "kernels/gemm/linear_op.hpp"
#include "kernels/select.hpp"

namespace rocm_sd {

// y[row] = epilogue(x[row] W^T + b). x has `rows` rows of `in` elements, `row_stride` elements apart.
// Under gated, W is [2*out,in] and y = value * gelu(gate); the epilogue then has a low-rank term at most.
struct LinearProblem {
  const Tensor& x;
  const LinearWeight& w;
  const Epilogue& epilogue;
  bool gated = false;
  const Tensor& y;  // contiguous
  int64_t rows = 0, in = 0, out = 0, row_stride = 0;

  DType dtype() const { return x.dtype(); }
  DType out_dtype() const { return y.dtype(); }  // dtype(), or f32 with bf16
  DType weight_dtype() const { return w.weight.dtype(); }
  DType stored_as() const { return w.weight.stored_as(); }        // weight_dtype(), or 8 bits
  bool mixed_types() const { return weight_dtype() != dtype(); }  // f32 by a weight stored in 16 bits
  int64_t rank() const { return epilogue.low_rank ? epilogue.low_rank->up->dim(1) : 0; }
  int64_t rows_per_scale() const {
    return epilogue.channel_scale ? rows / epilogue.channel_scale->dim(0) : 1;
  }
  LinearSpec spec() const;  // what of the problem has a text
  std::string describe() const;
  OpInfo info(const char* impl) const;
};

// Of implementations that know neither a scale of channels nor a low-rank term.
inline Refusal linear_refuses_terms(const LinearProblem& p) {
  if (p.epilogue.channel_scale) return "a scale of channels";
  if (p.epilogue.low_rank) return "a low-rank term";
  return std::nullopt;
}

Refusal linear_supports_tiled(const Exec& ex, const LinearProblem& p);
void linear_tiled(Exec& ex, const LinearProblem& p);
Refusal linear_supports_onednn(const Exec& ex, const LinearProblem& p);
void linear_onednn(Exec& ex, const LinearProblem& p);
Refusal linear_supports_scalar(const Exec& ex, const LinearProblem& p);
void linear_scalar(Exec& ex, const LinearProblem& p);
void linear_ref(Exec& ex, const LinearProblem& p);

}  // namespace rocm_sd
