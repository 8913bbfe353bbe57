// The checked problem of linear as the portable kernels take it.
#pragma once

#include "composable_kernels/fused/gemm.hpp"
#include "kernels/gemm/linear_impl.hpp"

namespace rocm_sd {

constexpr EpilogueActivation epilogue_activation(Activation act) {
  static_assert(static_cast<int>(Activation::kSilu) == static_cast<int>(EpilogueActivation::kSilu) &&
                static_cast<int>(Activation::kGelu) == static_cast<int>(EpilogueActivation::kGelu) &&
                static_cast<int>(Activation::kQuickGelu) ==
                    static_cast<int>(EpilogueActivation::kQuickGelu) &&
                static_cast<int>(Activation::kRelu) == static_cast<int>(EpilogueActivation::kRelu));
  return static_cast<EpilogueActivation>(act);
}

// Rows of x and of the weight begin at multiples of 16 bytes and have such a length: what tiles need.
// The same while planning, when x has no address.
inline bool linear_rows_aligned(const LinearProblem& p) {
  const auto chunk = static_cast<int64_t>(16 / dtype_size(p.dtype()));
  return p.in % chunk == 0 && p.row_stride % chunk == 0 && p.x.offset_bytes() % 16 == 0 &&
         p.rank() % chunk == 0 && (!p.rank() || p.epilogue.low_rank->states->offset_bytes() % 16 == 0);
}

// Without splits or partials, and without w and term.up, which are the caller's: the plain weights.
template <class T>
GemmParams<T> gemm_params(const LinearProblem& p) {
  GemmParams<T> params{};
  params.x = static_cast<const T*>(p.x.data());
  params.epilogue.y = static_cast<T*>(p.y.data());
  params.epilogue.residual =
      p.epilogue.residual ? static_cast<const T*>(p.epilogue.residual->data()) : nullptr;
  params.epilogue.bias = p.w.bias ? p.w.bias->as<float>() : nullptr;
  params.epilogue.y_stride = p.out;
  params.epilogue.rows = static_cast<int>(p.rows);
  params.epilogue.channels = static_cast<int>(p.out);
  params.epilogue.rows_per_image = 1;
  if (const Tensor* scale = p.epilogue.channel_scale) {
    params.epilogue.scale = scale->as<float>();
    params.epilogue.rows_per_scale = static_cast<int>(p.rows_per_scale());
    params.epilogue.factors_per_scale = static_cast<int>(scale->dim(1));
  }
  params.epilogue.act = epilogue_activation(p.epilogue.act);
  params.epilogue.float_result = p.out_dtype() != p.dtype();
  if (p.rank()) params.term.d = static_cast<const T*>(p.epilogue.low_rank->states->data());
  params.term.rank = static_cast<int>(p.rank());
  params.x_stride = p.row_stride;
  params.w_stride = p.in;
  params.depth = static_cast<int>(p.in);
  params.splits = 1;
  params.split_steps = params.depth;  // more than there are
  params.aligned = linear_rows_aligned(p);
  return params;
}

// The extents fit the kernels' 32-bit counters.
inline Refusal linear_extents_fit(const LinearProblem& p) {
  constexpr int64_t kMax = int64_t{1} << 30;
  if (p.rows > kMax || p.out > kMax / 2 || p.in + p.rank() > kMax) return "an extent beyond 2^30";
  return std::nullopt;
}

}  // namespace rocm_sd
