// What the ops of this folder share: a problem is a plain struct (pointers, extents, types) that a launch
// captures by value.
#pragma once

#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/select.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// Problem has op(), describe(), flops() and bytes().
template <class Problem>
OpInfo op_info(const Problem& problem, const char* impl) {
  return {problem.op(), concat(impl, " ", problem.describe()), problem.flops(), problem.bytes()};
}

// Launches body(problem); the copy in the launch outlives the op's tensors, so it must hold none.
template <class Problem>
void launch_problem(Exec& ex, const Problem& problem, const char* impl, void (*body)(const Problem&)) {
  ex.launch(op_info(problem, impl), [problem, body] { body(problem); });
}

// For implementations that read the tensors' memory with the host's instructions.
template <class Problem>
Refusal supports_host(const Exec& ex, const Problem&) {
  if (ex.device().kind() != DeviceKind::kHost) return "runs on the host only";
  return std::nullopt;
}

inline bool is_f32_or_bf16(DType type) { return type == DType::kF32 || type == DType::kBF16; }

// For the host's vector loops: they know f32 and bf16 only.
template <class Problem>
Refusal supports_host_f32_or_bf16(const Exec& ex, const Problem& problem) {
  if (problem.dtype == DType::kF16) return "takes f32 and bf16 only";
  return supports_host(ex, problem);
}

// What activations may be stored as.
inline bool is_activation_type(DType type) { return is_f32_or_bf16(type) || type == DType::kF16; }

// Throws UsageError unless the tensor is f32, bf16 or f16.
inline void require_activation_type(const Tensor& x, std::string_view op, std::string_view name) {
  require<UsageError>(is_activation_type(x.dtype()), op, ": ", name, " must be f32, bf16 or f16, is ",
                      x.dtype());
}
// Throws UsageError unless the tensor is f32 or bf16.
inline void require_f32_or_bf16(const Tensor& x, std::string_view op, std::string_view name) {
  require<UsageError>(is_f32_or_bf16(x.dtype()), op, ": ", name, " must be f32 or bf16, is ", x.dtype());
}
inline void require_contiguous(const Tensor& x, std::string_view op, std::string_view name) {
  require(x.is_contiguous(), op, ": ", name, " ", x.shape(), " must be contiguous");
}
// A parameter of the model: expected dtype and shape.
inline void require_tensor(const Tensor& x, DType dtype, const Shape& shape, std::string_view op,
                           std::string_view name) {
  require(x && x.shape() == shape && x.dtype() == dtype && x.is_contiguous(), op, ": ", name, " must be ",
          dtype, " ", shape, x ? concat(", is ", x.dtype(), " ", x.shape()) : std::string(", is missing"));
}

}  // namespace rocm_sd
