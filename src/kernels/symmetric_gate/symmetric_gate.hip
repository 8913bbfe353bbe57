// The kernels of symmetric_gate: composable_kernels/fused/symmetric_gate.hpp.
#include "composable_kernels/fused/symmetric_gate.hpp"

#include "kernels/memory_bound_kernels.hpp"

ROCM_SD_OP_FLOATS(symmetric_gate, SymmetricGateParams)
