// linear in double precision, as the formula reads: the truth that every other implementation is checked
// against.
#include <vector>

#include "kernels/gemm/linear_impl.hpp"
#include "kernels/reference.hpp"

namespace rocm_sd {

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
                w[i] = ref::load(plain.data(), weight_dtype, static_cast<int64_t>(i));
              const auto product = [&](int64_t row, int64_t column) {
                double sum = bias ? bias[column] : 0.0;
                for (int64_t k = 0; k < in; ++k)
                  sum += ref::load(x, dtype, row * row_stride + k) * w[static_cast<size_t>(column * in + k)];
                for (int64_t r = 0; r < rank; ++r)
                  sum += ref::load(states, dtype, row * rank + r) *
                         ref::load(plain_up.data(), weight_dtype, column * rank + r);
                return sum;
              };
#pragma omp parallel for collapse(2) schedule(static)
              for (int64_t row = 0; row < rows; ++row)
                for (int64_t column = 0; column < out; ++column) {
                  double v = product(row, column);
                  if (gated) v *= ref::activated(product(row, out + column), Activation::kGelu);
                  if (scale) v *= scale[row / per_scale * factors + column % factors];
                  if (residual) v += ref::load(residual, out_dtype, row * out + column);
                  ref::store(y, out_dtype, row * out + column, ref::activated(v, act));
                }
            });
}

}  // namespace rocm_sd
