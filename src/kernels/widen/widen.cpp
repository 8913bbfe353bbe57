#include "kernels/widen/widen.hpp"

#include "kernels/eight_bit.hpp"
#include "kernels/widen/widen_impl.hpp"

namespace rocm_sd {
namespace {

const ImplList<WidenProblem> kImpls = {"widen",
                                       {
                                           {"gpu", supports_widen_gpu, run_widen_gpu},
                                           {"scalar", supports_widen_scalar, run_widen_scalar},
                                           {"ref", supports_host, run_widen_ref},
                                       }};

}  // namespace

std::string WidenProblem::describe() const {
  return concat(from, " to ", dtype, " [", rows, ",", depth, "]");
}
double WidenProblem::bytes() const {
  return static_cast<double>(rows * depth) * static_cast<double>(1 + dtype_size(dtype)) +
         4.0 * static_cast<double>(rows);
}

Refusal refuse_widen_body(const WidenProblem& p) {
  if (p.rows * p.depth > int64_t{1} << 30) return "more than 2^30 elements";
  return std::nullopt;
}

Tensor widen(Exec& ex, const Tensor& values, const Tensor& scales, DType dtype) {
  require<UsageError>(values && is_eight_bit(values.dtype()), "widen: the values must be i8 or f8e4m3",
                      values ? concat(", are ", values.dtype()) : "");
  require<UsageError>(is_activation_type(dtype), "widen: to f32, bf16 or f16, not ", dtype);
  require(values.rank() >= 1, "widen: the values ", values.shape(), " have no rows");
  require_contiguous(values, "widen", "the values");
  require_tensor(scales, DType::kF32, {values.dim(0)}, "widen", "the scales");
  const Tensor y = ex.alloc(values.shape(), dtype);
  if (y.numel() == 0) return y;
  const WidenProblem problem{.values = values.data(),
                             .scales = scales.as<float>(),
                             .y = y.data(),
                             .from = values.dtype(),
                             .dtype = dtype,
                             .rows = values.dim(0),
                             .depth = values.numel() / values.dim(0)};
  select(ex, kImpls, problem).run(ex, problem);
  return y;
}

}  // namespace rocm_sd
