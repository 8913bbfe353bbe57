// linear in double precision, as the formula reads: the truth that every other implementation is checked
// against.
#include <cmath>
#include <numbers>
#include <vector>

#include "base/dtype.hpp"
#include "kernels/gemm/linear_impl.hpp"

namespace rocm_sd {
namespace {

double value_at(const void* data, DType dtype, int64_t i) {
  if (dtype == DType::kF32) return static_cast<const float*>(data)[i];
  const uint16_t bits = static_cast<const uint16_t*>(data)[i];
  return dtype == DType::kF16 ? f16_to_float(bits) : bf16_to_float(bits);
}

double gelu(double v) { return v * 0.5 * (1.0 + std::erf(v / std::numbers::sqrt2)); }

double activated(double v, Activation act) {
  switch (act) {
    case Activation::kNone: return v;
    case Activation::kSilu: return v / (1.0 + std::exp(-v));
    case Activation::kGelu: return gelu(v);
    case Activation::kQuickGelu: return v / (1.0 + std::exp(-1.702 * v));
    case Activation::kRelu: return v > 0 ? v : 0;
  }
  return v;
}

}  // namespace

void linear_ref(Exec& ex, const LinearProblem& p) {
  const DType dtype = p.dtype(), out_dtype = p.out_dtype();
  const void* x = p.x.data();
  const float* bias = p.w.bias ? p.w.bias->as<float>() : nullptr;
  const void* residual = p.epilogue.residual ? p.epilogue.residual->data() : nullptr;
  void* y = p.y.data();
  const float* scale = p.epilogue.channel_scale ? p.epilogue.channel_scale->as<float>() : nullptr;
  const LowRankProduct* term = p.epilogue.low_rank;
  // The weight is taken plain inside the launch: nothing is kept between runs.
  ex.launch(p.info("ref"),
            [=, weight = p.w.weight, weight_dtype = p.weight_dtype(), rows = p.rows, in = p.in, out = p.out,
             gated = p.gated, row_stride = p.row_stride, act = p.epilogue.act, per_scale = p.rows_per_scale(),
             factors = scale ? p.epilogue.channel_scale->dim(1) : 1, rank = p.rank(),
             states = term ? term->states->data() : nullptr, up = term ? *term->up : Weight()] {
              const Tensor plain = weight.plain();  // [out or 2*out,in]
              const Tensor plain_up = rank ? up.plain() : Tensor();
              std::vector<double> w(static_cast<size_t>(plain.numel()));
              for (size_t i = 0; i < w.size(); ++i)
                w[i] = value_at(plain.data(), weight_dtype, static_cast<int64_t>(i));
              const auto product = [&](int64_t row, int64_t column) {
                double sum = bias ? bias[column] : 0.0;
                for (int64_t k = 0; k < in; ++k)
                  sum += value_at(x, dtype, row * row_stride + k) * w[static_cast<size_t>(column * in + k)];
                for (int64_t r = 0; r < rank; ++r)
                  sum += value_at(states, dtype, row * rank + r) *
                         value_at(plain_up.data(), weight_dtype, column * rank + r);
                return sum;
              };
#pragma omp parallel for collapse(2) schedule(static)
              for (int64_t row = 0; row < rows; ++row)
                for (int64_t column = 0; column < out; ++column) {
                  double v = product(row, column);
                  if (gated) v *= gelu(product(row, out + column));
                  if (scale) v *= scale[row / per_scale * factors + column % factors];
                  if (residual) v += value_at(residual, out_dtype, row * out + column);
                  const auto result = static_cast<float>(activated(v, act));
                  if (out_dtype == DType::kF32)
                    static_cast<float*>(y)[row * out + column] = result;
                  else
                    static_cast<uint16_t*>(y)[row * out + column] =
                        out_dtype == DType::kF16 ? float_to_f16(result) : float_to_bf16(result);
                }
            });
}

}  // namespace rocm_sd
