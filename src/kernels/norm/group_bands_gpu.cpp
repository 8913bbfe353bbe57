// The steps of a banded group norm on a GPU, and their bodies as the host runs them.
#include <algorithm>

#include "composable_kernels/arch/scalar.hpp"
#include "composable_kernels/fused/group_bands.hpp"
#include "kernels/gpu_launch.hpp"
#include "kernels/norm/group_bands_configs.hpp"
#include "kernels/norm/group_bands_impl.hpp"
#include "kernels/norm/norm_configs.hpp"
#include "kernels/norm/norm_plan.hpp"
#include "kernels/scalar_launch.hpp"

namespace rocm_sd {
namespace {

using namespace group_bands_configs;

// Channels that a thread takes at once.
template <class Problem>
int pack_of(const Problem& p) {
  const int full = norm_configs::full_pack(static_cast<int>(dtype_size(p.dtype)));
  return p.aligned && p.channels % full == 0 ? full : 1;
}

template <class T>
GroupMomentsParams<T> params_of(const GroupMomentsProblem& p, int vec) {
  return {.x = static_cast<const T*>(p.x),
          .out = p.out,
          .pixels = p.pixels,
          .out_step = p.out_step,
          .channels = static_cast<int32_t>(p.channels),
          .groups = static_cast<int32_t>(p.groups),
          .rows = static_cast<int32_t>(p.rows),
          .slab = static_cast<int32_t>(group_norm_slab(p.channels, p.groups, vec))};
}
GroupScaleParams params_of(const GroupScaleProblem& p) {
  return {p.moments,
          p.gain,
          p.out,
          static_cast<int32_t>(p.images),
          static_cast<int32_t>(p.rows),
          static_cast<int32_t>(p.channels),
          static_cast<int32_t>(p.groups),
          p.eps};
}
template <class T>
NormaliseParams<T> params_of(const NormaliseProblem& p, int vec) {
  int64_t columns = p.channels / vec;  // as many as one workgroup takes of them without a rest
  for (int64_t slabs = 1; columns > kWideColumns; ++slabs)
    if (p.channels / vec % slabs == 0) columns = p.channels / vec / slabs;
  const int64_t piece = kThreads / columns * kPiecePacks;
  NormaliseParams<T> out{.sources = {},
                         .scale = p.scale,
                         .bias = p.bias,
                         .y = static_cast<T*>(p.y),
                         .pixels = p.all_pixels(),
                         .channels = static_cast<int32_t>(p.channels),
                         .pieces = 0,
                         .slab = static_cast<int32_t>(columns * vec),
                         .piece = static_cast<int32_t>(piece),
                         .silu = p.silu};
  const auto sources = p.sources();
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto pieces = static_cast<int32_t>((sources[i].pixels + piece - 1) / piece);
    out.sources[i] = {static_cast<const T*>(sources[i].x), static_cast<int32_t>(sources[i].pixels), pieces};
    out.pieces += pieces;
  }
  return out;
}
template <class T>
int64_t workgroups(const NormaliseParams<T>& p, int64_t images) {
  return images * p.pieces * (p.channels / p.slab);
}

// The kernels do not look behind the pointers' types.
template <class Params>
void launch(Exec& ex, OpInfo info, const std::string& kernel, int64_t workgroups, const Params& params) {
  launch_kernel(ex, std::move(info), *gpu_device(ex)->find_kernel(kernel),
                {static_cast<uint32_t>(workgroups)}, kThreads, 0, params);
}

template <class Problem>
std::string kernel_name(const Problem& p) {
  return concat(p.op(), "_", p.dtype, "_v", pack_of(p));
}

template <class Storage, int kWidth>
struct Cfg {
  using T = Storage;
  static constexpr int kVec = kWidth, kThreads = group_bands_configs::kThreads;
};
// Calls body with a configuration of the problem's type and pack.
template <class Problem, class Body>
void with_cfg(const Problem& p, const Body& body) {
  with_storage(p.dtype, [&](auto storage) {
    using T = decltype(storage);
    constexpr int kFull = norm_configs::full_pack(sizeof(T));
    pack_of(p) == 1 ? body(Cfg<T, 1>{}) : body(Cfg<T, kFull>{});
  });
}

void group_moments_scalar(const GroupMomentsProblem& p) {
  with_cfg(p, [&](auto cfg) {
    using C = decltype(cfg);
    const auto params = params_of<typename C::T>(p, C::kVec);
    for_each_block(p.images * p.rows * (params.channels / params.slab), [&](const Block<Scalar>& block) {
      group_norms::MeasureLds<C::kThreads, C::kVec> lds;
      group_moments_body<Scalar, C>(params, block, lds);
    });
  });
}
void group_scale_scalar(const GroupScaleProblem& p) {
  for (int64_t g = 0; g < p.images * p.groups; ++g)
    group_scale_body<Scalar>(params_of(p), static_cast<int>(g));
}
void normalise_scalar(const NormaliseProblem& p) {
  with_cfg(p, [&](auto cfg) {
    using C = decltype(cfg);
    const auto params = params_of<typename C::T>(p, C::kVec);
    for_each_block(workgroups(params, p.images),
                   [&](const Block<Scalar>& block) { normalise_channels_body<Scalar, C>(params, block); });
  });
}

Refusal refuse_groups(const GroupMomentsProblem& p) {
  const int vec = pack_of(p);
  if (group_norm_slab(p.channels, p.groups, vec) == 0)
    return concat("takes groups of at most ", kThreads * vec, " channels");
  return std::nullopt;
}

}  // namespace

Refusal supports_group_moments_gpu(const Exec& ex, const GroupMomentsProblem& p) {
  if (const Refusal refusal = supports_kernel(ex, kernel_name(p))) return refusal;
  return refuse_groups(p);
}
void run_group_moments_gpu(Exec& ex, const GroupMomentsProblem& p) {
  const auto params = params_of<float>(p, pack_of(p));
  launch(ex, op_info(p, "gpu"), kernel_name(p), p.images * p.rows * (params.channels / params.slab), params);
}
Refusal supports_group_moments_scalar(const Exec& ex, const GroupMomentsProblem& p) {
  if (const Refusal refusal = supports_host(ex, p)) return refusal;
  return refuse_groups(p);
}
void run_group_moments_scalar(Exec& ex, const GroupMomentsProblem& p) {
  launch_problem(ex, p, "scalar", group_moments_scalar);
}

Refusal supports_group_scale_gpu(const Exec& ex, const GroupScaleProblem& p) {
  return supports_kernel(ex, p.op());
}
void run_group_scale_gpu(Exec& ex, const GroupScaleProblem& p) {
  launch(ex, op_info(p, "gpu"), p.op(),
         (p.images * p.groups * gpu_device(ex)->traits().lanes + kThreads - 1) / kThreads, params_of(p));
}
void run_group_scale_scalar(Exec& ex, const GroupScaleProblem& p) {
  launch_problem(ex, p, "scalar", group_scale_scalar);
}

Refusal supports_normalise_gpu(const Exec& ex, const NormaliseProblem& p) {
  return supports_kernel(ex, kernel_name(p));
}
void run_normalise_gpu(Exec& ex, const NormaliseProblem& p) {
  const auto params = params_of<float>(p, pack_of(p));
  launch(ex, op_info(p, "gpu"), kernel_name(p), workgroups(params, p.images), params);
}
void run_normalise_scalar(Exec& ex, const NormaliseProblem& p) {
  launch_problem(ex, p, "scalar", normalise_scalar);
}

}  // namespace rocm_sd
