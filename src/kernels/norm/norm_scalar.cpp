// The portable bodies of group_norm and layer_norm on the host's threads.
#include "composable_kernels/fused/norm.hpp"

#include "kernels/norm/norm_impl.hpp"
#include "kernels/scalar_launch.hpp"

namespace rocm_sd {
namespace {

void group_norm_scalar(const GroupNormProblem& p) {
  with_storage(p.dtype, [&](auto storage) {
    using T = decltype(storage);
    const GroupNormParams<T> params{static_cast<const T*>(p.x),
                                    static_cast<const T*>(p.second),
                                    p.gain,
                                    p.bias,
                                    static_cast<T*>(p.y),
                                    p.images,
                                    p.pixels,
                                    p.channels,
                                    p.first_channels(),
                                    p.groups,
                                    p.eps,
                                    p.silu};
    for_each_block(p.images * p.groups, [&](const Block<Scalar>& block) {
      group_norm_body<Scalar, StorageCfg<T>>(params, block);
    });
  });
}

void layer_norm_scalar(const LayerNormProblem& p) {
  with_storage(p.dtype, [&](auto storage) {
    using T = decltype(storage);
    const LayerNormParams<T> params{
        static_cast<const T*>(p.x), p.gain, p.bias, static_cast<T*>(p.y), p.rows, p.cols, p.eps};
    for_each_block(
        p.rows, [&](const Block<Scalar>& block) { layer_norm_body<Scalar, StorageCfg<T>>(params, block); });
  });
}

}  // namespace

void run_group_norm_scalar(Exec& ex, const GroupNormProblem& problem) {
  launch_problem(ex, problem, "scalar", group_norm_scalar);
}
void run_layer_norm_scalar(Exec& ex, const LayerNormProblem& problem) {
  launch_problem(ex, problem, "scalar", layer_norm_scalar);
}

}  // namespace rocm_sd
