// A problem as the portable body of attention takes it.
#pragma once

#include "composable_kernels/fused/attention.hpp"
#include "kernels/attention/attention_impl.hpp"

namespace rocm_sd {

// T: the operands' type. A kernel of its own type takes any T: it sees the same bytes.
template <class T>
AttentionParams<T> attention_params(const AttentionProblem& p) {
  const auto rows = [](const AttentionProblem::Rows& r) {
    return typename AttentionParams<T>::Rows{static_cast<const T*>(r.data), r.image, r.row};
  };
  AttentionParams<T> params{.q = rows(p.q), .k = rows(p.k), .v = rows(p.v), .y = static_cast<T*>(p.y)};
  params.mask = p.mask;
  params.batch = p.batch;
  params.heads = p.heads;
  params.queries = p.queries;
  params.keys = p.keys;
  params.head_dim = p.head_dim;
  params.scale = p.scale;
  params.causal = p.causal;
  for (int i = 0; i < 4; ++i) params.mask_strides[i] = p.mask_strides[i];
  return params;
}

}  // namespace rocm_sd
