// symmetric_gate: SPAN's attention without parameters (Wan et al., "Swift Parameter-free Attention Network
// for Efficient Super-Resolution", 2023, equations 3 to 5).
#pragma once

#include "runtime/exec.hpp"

namespace rocm_sd {

// (v + x) * (sigmoid(v) - 1/2): v and x contiguous, of one shape and type, f32, bf16 or f16 -> the same.
// Throws ShapeError where they differ, UsageError for other types.
Tensor symmetric_gate(Exec& ex, const Tensor& v, const Tensor& x);

}  // namespace rocm_sd
