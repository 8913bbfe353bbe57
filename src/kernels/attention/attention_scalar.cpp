// attention's portable body on the host's threads.
#include "composable_kernels/fused/attention.hpp"

#include "kernels/attention/attention_impl.hpp"
#include "kernels/scalar_launch.hpp"

namespace rocm_sd {
namespace {

template <class Storage>
struct Cfg {
  using T = Storage;
  static constexpr int kTileKeys = 64;
  static constexpr int kMaxDim = 512;
};

template <class T>
AttentionParams<T> params_of(const AttentionProblem& p) {
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

void attend(const AttentionProblem& p) {
  with_storage(p.dtype, [&](auto storage) {
    using T = decltype(storage);
    const AttentionParams<T> params = params_of<T>(p);
    for_each_block(p.batch * p.heads * p.queries, [&](const Block<Scalar>& block) {
      float weights[Cfg<T>::kTileKeys];
      attention_body<Scalar, Cfg<T>>(params, block, weights);
    });
  });
}

}  // namespace

Refusal supports_attention_scalar(const Exec& ex, const AttentionProblem& problem) {
  if (problem.head_dim > Cfg<float>::kMaxDim) return concat("head_dim ", problem.head_dim, " exceeds 512");
  return supports_host_f32_or_bf16(ex, problem);
}
void run_attention_scalar(Exec& ex, const AttentionProblem& problem) {
  launch_problem(ex, problem, "scalar", attend);
}

}  // namespace rocm_sd
