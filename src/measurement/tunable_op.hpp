// PyTorch's TunableOp files: what PyTorch is to tune for the same matrix products.
#pragma once

#include <string>
#include <vector>

namespace rocm_sd::measurement {

// The lines of an "untuned" file (torch.cuda.tunable.tune_gemm_in_file) for the linear problems among these,
// as torch.nn.functional.linear asks its library for them: column-major y^T = W x^T, W transposed. Others,
// and texts that are no problem, are left out; duplicates, too. Results cannot be handed over: TunableOp's
// name solutions of rocBLAS and hipBLASLt, which our kernels are not.
std::string tunable_op_csv(const std::vector<std::string>& linear_problems);

}  // namespace rocm_sd::measurement
