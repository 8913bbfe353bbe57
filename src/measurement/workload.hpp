// Workload: a problem of an op from the text that the op itself gives of it ("linear", "8192x320x320 f16
// bias"), so that plans, tables and files of shapes all name problems alike.
#pragma once

#include <string_view>

#include "kernels/op_problem.hpp"

namespace rocm_sd::measurement {

// Operands are dense: the text does not say how they lie in larger ones.
using Workload = OpProblem;

// Throws UsageError where the op or the text is not understood, with the place.
inline Workload parse_workload(std::string_view op, std::string_view text) { return parse_problem(op, text); }
inline bool is_workload_op(std::string_view op) { return find_op(op) != nullptr; }

// The type of the output.
inline DType result_type(const Workload& workload) {
  return workload.output() ? workload.output()->dtype : workload.dtype;
}
inline int64_t output_count(const Workload& workload) {
  return workload.output() ? workload.output()->shape.numel() : 0;
}

}  // namespace rocm_sd::measurement
