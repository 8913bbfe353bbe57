// A problem of the kernel library: the operands that its caller will give, and the ops that compute it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/weight.hpp"
#include "rocm_sd/kernels.h"
#include "runtime/exec.hpp"

namespace rocm_sd::library {

// What a launch points to. kWorkspace and kPrepared are the library's own, the others operands of problems.
enum class Slot {
  kQ,
  kK,
  kV,
  kMask,
  kX,
  kSecond,
  kWeight,
  kBias,
  kShift,
  kResidual,
  kSum,
  kY,
  kPrepared,
  kWorkspace
};
inline constexpr int kSlots = 14;
const char* slot_name(Slot slot);  // as rocm_sd_kernels_operands calls it

struct Operand {
  Slot slot;
  Shape shape, strides;  // strides in elements
  DType dtype;
  bool output = false;
  size_t bytes() const;  // from the first element to the last
};

// A result of an op, which the caller finds `offset` bytes into the operand `slot`.
struct Result {
  Slot slot;
  size_t offset;
  Tensor tensor;  // contiguous
};

using Operands = std::map<Slot, Tensor>;

struct Problem {
  std::string text;               // "attention f16 [2,8,4096x77,40]"
  std::vector<Operand> operands;  // inputs and outputs
  // Runs the ops. weight: over the operand of that name, where the problem has one.
  std::function<std::vector<Result>(Exec&, const Operands&, const Weight& weight)> run;
};

// Types that are not the problem's dtype, as the ops take them: linear's weight in 16 bits beside an x of
// f32; a result (and its residual) of f32 from products of bf16, or of bf16 from a norm of f32.
struct OtherTypes {
  std::optional<DType> weight = std::nullopt, result = std::nullopt;
};

// Each throws ShapeError for extents that no device would take, UsageError for what this library does not.
Problem attention_problem(const rocm_sd_kernels_attention& p);
Problem linear_problem(const rocm_sd_kernels_linear& p, const OtherTypes& types);
Problem conv2d_problem(const rocm_sd_kernels_conv2d& p, const OtherTypes& types);
Problem group_norm_problem(const rocm_sd_kernels_group_norm& p, const OtherTypes& types);
Problem layer_norm_problem(const rocm_sd_kernels_layer_norm& p, const OtherTypes& types);
Problem geglu_problem(const rocm_sd_kernels_geglu& p);
// All in the problem's dtype.
inline Problem linear_problem(const rocm_sd_kernels_linear& p) { return linear_problem(p, {}); }
inline Problem conv2d_problem(const rocm_sd_kernels_conv2d& p) { return conv2d_problem(p, {}); }
inline Problem group_norm_problem(const rocm_sd_kernels_group_norm& p) { return group_norm_problem(p, {}); }
inline Problem layer_norm_problem(const rocm_sd_kernels_layer_norm& p) { return layer_norm_problem(p, {}); }

// Row-major.
Operand dense(Slot slot, const Shape& shape, DType dtype, bool output = false);

}  // namespace rocm_sd::library
