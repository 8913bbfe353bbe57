// Workload: a problem of an op from the text that the op itself gives of it ("linear", "8192x320x320 f16
// bias"), so that plans, tables and files of shapes all name problems alike.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "kernel_library/problem.hpp"

namespace rocm_sd::measurement {

using WorkloadArgs = std::variant<rocm_sd_kernels_attention, rocm_sd_kernels_linear, rocm_sd_kernels_conv2d,
                                  rocm_sd_kernels_group_norm, rocm_sd_kernels_layer_norm>;

struct Workload {
  std::string op;    // "attention", "linear", "conv2d", "group_norm" or "layer_norm"
  std::string text;  // as the op's problem describes itself
  WorkloadArgs args;
  DType dtype = DType::kF32;
  std::optional<DType> held;  // of linear: i8 or f8e4m3 where the weight is held in 8 bits
  bool products = false;      // and they may be multiplied so
  library::OtherTypes types;  // of weight and result where they are not dtype
  double flops = 0;           // 2 per multiply-add
  double bytes = 0;           // operands read once, the output written once

  DType result() const { return types.result.value_or(dtype); }
  library::Problem problem() const;
};

// Operands are dense: the text does not say how they lie in larger ones. Throws UsageError where the op or
// the text is not understood, with the place.
Workload parse_workload(std::string_view op, std::string_view text);
bool is_workload_op(std::string_view op);

}  // namespace rocm_sd::measurement
