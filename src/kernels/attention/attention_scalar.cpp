// attention's portable body on the host's threads.
#include "composable_kernels/fused/attention.hpp"

#include "kernels/attention/attention_impl.hpp"
#include "kernels/attention/attention_params.hpp"
#include "kernels/scalar_launch.hpp"

namespace rocm_sd {
namespace {

template <class Storage>
struct Cfg {
  using T = Storage;
  static constexpr int kTileKeys = 64;
  static constexpr int kMaxDim = 512;
};

void attend(const AttentionProblem& p) {
  with_storage(p.dtype, [&](auto storage) {
    using T = decltype(storage);
    const AttentionParams<T> params = attention_params<T>(p);
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
