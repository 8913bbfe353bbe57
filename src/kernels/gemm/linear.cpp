#include "kernels/gemm/linear.hpp"

#include "base/error.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/gemm/ck_linear.hpp"
#include "kernels/gemm/linear_eight_bit.hpp"
#include "kernels/gemm/linear_gpu.hpp"
#include "kernels/gemm/linear_impl.hpp"
#include "kernels/gemm/linear_vendor.hpp"
#include "kernels/gemm/whole_rows.hpp"
#include "kernels/problem.hpp"
#include "kernels/result_type.hpp"

namespace rocm_sd {
namespace {

// Our own kernels first: a vendor's library is taken where a tuning table names it.
ImplList<LinearProblem> with_vendors(ImplList<LinearProblem> list) {
  const std::vector<Impl<LinearProblem>> vendors = linear_vendor_impls();
  list.impls.insert(list.impls.end(), vendors.begin(), vendors.end());
  list.impls.push_back(linear_ck_impl());
  return list;
}

const ImplList<LinearProblem> kImpls =
    with_vendors({"linear",
                  {
                      {"gpu_eight_bit", linear_supports_eight_bit, linear_eight_bit, &kLinearEightBitConfigs},
                      {"gpu", linear_supports_gpu, linear_gpu, &kLinearGpuConfigs},
                      {"tiled", linear_supports_tiled, linear_tiled},
                      {"onednn", linear_supports_onednn, linear_onednn},
                      {"scalar", linear_supports_scalar, linear_scalar},
                      {"ref", supports_host<LinearProblem>, linear_ref},
                  }});

// Where the CPU multiplies bf16 in hardware oneDNN's products are the fastest (conv2d.cpp says where that was
// measured).
const ImplList<LinearProblem> kHardwareBf16 =
    with_vendors({"linear",
                  {
                      {"gpu_eight_bit", linear_supports_eight_bit, linear_eight_bit, &kLinearEightBitConfigs},
                      {"gpu", linear_supports_gpu, linear_gpu, &kLinearGpuConfigs},
                      {"onednn", linear_supports_onednn, linear_onednn},
                      {"tiled", linear_supports_tiled, linear_tiled},
                      {"scalar", linear_supports_scalar, linear_scalar},
                      {"ref", supports_host<LinearProblem>, linear_ref},
                  }});

const ImplList<LinearProblem>& impls_for(const LinearProblem& p) {
  return p.dtype() == DType::kBF16 && host_has_bf16() ? kHardwareBf16 : kImpls;
}

void check_operands(const char* op, const Tensor& x, const LinearWeight& w) {
  require(static_cast<bool>(x) && static_cast<bool>(w.weight), op, ": an operand is empty");
  const Shape& shape = w.weight.shape();
  require(shape.rank() == 2, op, ": expected a weight [out,in], got ", shape);
  require(x.rank() >= 1 && x.dim(-1) == shape[1], op, ": x ", x.shape(), " does not fit the weight ", shape);
  require(x.dtype() == DType::kF32 || x.dtype() == DType::kBF16 || x.dtype() == DType::kF16, op, ": x is ",
          x.dtype(), ", expected f32, bf16 or f16");
  const bool mixed_types = x.dtype() == DType::kF32 && is_activation_type(w.weight.dtype());
  require(x.dtype() == w.weight.dtype() || mixed_types, op, ": x is ", x.dtype(), ", the weight ",
          w.weight.dtype());
  if (!w.bias) return;
  require(w.bias->shape() == Shape{shape[0]} && w.bias->dtype() == DType::kF32 && w.bias->is_contiguous(), op,
          ": expected a bias [", shape[0], "] of f32, got ", w.bias->shape(), " of ", w.bias->dtype());
}

// Whether the problem has a kernel for its low-rank term that is as good as the one without.
bool adds_low_rank(const Exec& ex, const LinearProblem& p) {
  const std::string forced = forced_impl("linear");
  if (forced == "ref") return true;
  if (forced == "scalar") return !linear_supports_scalar(ex, p);
  Epilogue epilogue = p.epilogue;
  epilogue.low_rank = nullptr;
  const LinearProblem plain{p.x, p.w, epilogue, p.gated, p.y, p.rows, p.in, p.out, p.row_stride};
  return linear_supports_eight_bit(ex, plain) && linear_gpu_adds_low_rank(ex, p, plain);
}

// The distance of consecutive rows of x, which must be the same throughout, in elements.
int64_t uniform_row_stride(const char* op, const Tensor& x) {
  const bool dense_rows = x.dim(-1) == 1 || x.stride(x.rank() - 1) == 1;
  int64_t stride = 0, next = 0;  // next: what the dimension further out must have
  bool uniform = dense_rows;
  for (int i = x.rank() - 2; i >= 0; --i) {
    if (x.dim(i) == 1) continue;
    if (stride == 0) stride = next = x.stride(i);
    uniform = uniform && x.stride(i) == next;
    next *= x.dim(i);
  }
  require(uniform, op, ": the rows of x ", x.shape(), " are not evenly spaced");
  return stride == 0 ? x.dim(-1) : stride;
}

void check_scale(const char* op, const Tensor& scale, int64_t rows, int64_t out) {
  require(scale.rank() == 2 && scale.dtype() == DType::kF32 && scale.is_contiguous() &&
              (scale.dim(1) == out || scale.dim(1) == 1) && scale.dim(0) > 0 && rows % scale.dim(0) == 0,
          op, ": expected a channel scale [N,", out, "] or [N,1] of f32, N a divisor of ", rows,
          " rows, got ", scale.shape(), " of ", scale.dtype());
}

void check_low_rank(const char* op, const LowRankProduct& term, const Tensor& x, const LinearWeight& w) {
  require(term.states && term.up && *term.states && *term.up, op,
          ": an operand of the low-rank term is empty");
  const Tensor& states = *term.states;
  const Shape& up = term.up->shape();
  require(up.rank() == 2 && up[0] == w.weight.dim(0) && up[1] > 0, op, ": expected a low-rank term up [",
          w.weight.dim(0), ",R], got ", up);
  Shape shape = x.shape();
  shape[-1] = up[1];
  require(states.shape() == shape && states.is_contiguous(), op, ": expected contiguous states ", shape,
          " of the low-rank term, got ", states.shape());
  require(states.dtype() == x.dtype() && term.up->dtype() == w.weight.dtype() &&
              term.up->stored_as() == term.up->dtype(),
          op, ": the low-rank term is ", states.dtype(), " by ", term.up->stored_as(), ", the product ",
          x.dtype(), " by ", w.weight.dtype());
}

// Where no kernel takes the term: a product that the other one adds.
Tensor after_its_term(Exec& ex, const Tensor& x, const LinearWeight& w, const Epilogue& epilogue,
                      bool gated) {
  const Tensor term =
      linear(ex, *epilogue.low_rank->states, LinearWeight{*epilogue.low_rank->up, std::nullopt},
             {.residual = epilogue.residual, .dtype = epilogue.dtype});
  Epilogue added = epilogue;
  added.low_rank = nullptr;
  added.residual = &term;
  const Tensor y = linear(ex, x, w, added);
  return gated ? geglu(ex, y) : y;
}

Tensor run(Exec& ex, const char* op, const Tensor& x, const LinearWeight& w, const Epilogue& epilogue,
           bool gated) {
  check_operands(op, x, w);
  const int64_t outputs = w.weight.dim(0);
  require(!gated || outputs % 2 == 0, op, ": cannot halve the weight ", w.weight.shape());
  require(!epilogue.channel_shift && !epilogue.slopes, op, ": a channel shift or slopes are not taken here");
  Shape shape = x.shape();
  shape[-1] = gated ? outputs / 2 : outputs;
  const DType dtype = result_dtype(op, x, epilogue);
  if (epilogue.residual)
    require(epilogue.residual->shape() == shape && epilogue.residual->dtype() == dtype &&
                epilogue.residual->is_contiguous(),
            op, ": expected a contiguous residual ", shape, " of ", dtype, ", got ",
            epilogue.residual->shape(), " of ", epilogue.residual->dtype());
  const int64_t in = x.dim(-1);
  require(in > 0, op, ": x ", x.shape(), " has no columns");
  if (epilogue.channel_scale) check_scale(op, *epilogue.channel_scale, x.numel() / in, outputs);
  if (epilogue.low_rank) check_low_rank(op, *epilogue.low_rank, x, w);
  if (!epilogue.low_rank && linear_wants_whole_rows(ex, x, w)) {
    const Tensor whole = with_whole_rows(ex, x);
    return run(ex, op, whole, with_whole_rows(ex, w), epilogue, gated);
  }
  Tensor y = ex.alloc(shape, dtype);
  if (y.numel() == 0) return y;
  const LinearProblem problem{
      x, w, epilogue, gated, y, x.numel() / in, in, shape[-1], uniform_row_stride(op, x)};
  if (epilogue.low_rank && !adds_low_rank(ex, problem)) {
    y = Tensor();
    return after_its_term(ex, x, w, epilogue, gated);
  }
  select(ex, impls_for(problem), problem).run(ex, problem);
  return y;
}

}  // namespace

LinearSpec LinearProblem::spec() const {
  LinearSpec out{.dtype = dtype(),
                 .rows = rows,
                 .columns = gated ? 2 * this->out : this->out,
                 .in = in,
                 .products = w.weight.products(),
                 .bias = w.bias.has_value(),
                 .residual = epilogue.residual != nullptr,
                 .gated = gated,
                 .act = epilogue.act,
                 .scales = epilogue.channel_scale ? epilogue.channel_scale->dim(0) : 0,
                 .shared_scale = epilogue.channel_scale && epilogue.channel_scale->dim(1) == 1,
                 .rank = rank()};
  if (stored_as() != dtype()) out.weight = stored_as();
  if (out_dtype() != dtype()) out.result = out_dtype();
  return out;
}
std::string LinearProblem::describe() const { return text_of(spec()); }

OpInfo LinearProblem::info(const char* impl) const {
  const double products = static_cast<double>(rows) * static_cast<double>(w.weight.shape().numel());
  const auto bytes = [](int64_t elements, DType type) {
    return static_cast<double>(elements) * static_cast<double>(dtype_size(type));
  };
  const int64_t columns = w.weight.dim(0);
  return {gated ? "linear_geglu" : "linear", concat(impl, " ", describe()),
          2 * products + 2 * static_cast<double>(rows * columns) * static_cast<double>(rank()),
          bytes(rows * in, dtype()) + bytes(w.weight.shape().numel(), weight_dtype()) +
              bytes((rows + columns) * rank(), dtype()) +
              bytes(y.numel() * (epilogue.residual ? 2 : 1), out_dtype())};
}

Tensor linear(Exec& ex, const Tensor& x, const LinearWeight& w, const Epilogue& epilogue) {
  return run(ex, "linear", x, w, epilogue, false);
}

Tensor linear_geglu(Exec& ex, const Tensor& x, const LinearWeight& w, const LowRankProduct* low_rank) {
  return run(ex, "linear_geglu", x, w, {.low_rank = low_rank}, true);
}

}  // namespace rocm_sd
