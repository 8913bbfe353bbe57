// Products on a GPU whose depth is cut into parts: the numbers of parts that are worth timing, and the launch
// that sums parts where the workgroups do not.
#pragma once

#include <vector>

#include "composable_kernels/fused/gemm.hpp"
#include "kernels/gemm/linear_configs.hpp"
#include "kernels/gemm/linear_impl.hpp"
#include "kernels/gpu_launch.hpp"

namespace rocm_sd {

// From 2 on: no more than give every compute unit two workgroups, of at least so many steps that a pipeline
// fills, and of those that come to the same steps the least. steps: of the depth.
inline std::vector<int> worthwhile_splits(int64_t tiles, int64_t steps, int64_t compute_units) {
  constexpr int kMaxSplits = 8, kLeastSteps = 4;
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  std::vector<int> out;
  for (int splits = 2; splits <= kMaxSplits; ++splits) {
    if (tiles * (splits - 1) >= 2 * compute_units || steps / splits < kLeastSteps) break;
    if (ceil_div(steps, ceil_div(steps, splits)) == splits) out.push_back(splits);
  }
  return out;
}

template <class T>
struct PartialProducts {
  GemmReduceParams<T> reduce;
  Tensor values;  // [splits,rows,columns]; empty of one part

  // params: of the product, which writes its parts here and leaves the epilogue to sum(); unchanged of one
  // part.
  template <class Params>
  PartialProducts(Exec& ex, const LinearProblem& p, int splits, Params& params)
      : reduce{nullptr, params.epilogue, splits, p.gated} {
    if (splits == 1) return;
    const int64_t columns = p.gated ? 2 * p.out : p.out;
    values = ex.alloc({splits, p.rows, columns}, DType::kF32);
    reduce.partials = params.partials = values.as<float>();
    params.epilogue.channels = static_cast<int>(columns);
  }
  // After the product's launch.
  void sum(Exec& ex, const LinearProblem& p) const {
    if (reduce.splits == 1) return;
    const int64_t pieces = p.rows * ((p.out + 7) / 8);
    const auto workgroups = static_cast<uint32_t>((pieces + kGemmReduceThreads - 1) / kGemmReduceThreads);
    launch_kernel(ex,
                  {"linear", concat("gpu reduce of ", reduce.splits, ": ", p.describe()), 0,
                   static_cast<double>(values.bytes() + p.y.bytes())},
                  *gpu_device(ex)->find_kernel(concat("gemm_reduce_", p.dtype())), {workgroups, 1, 1},
                  kGemmReduceThreads, 0, reduce);
  }
};

}  // namespace rocm_sd
