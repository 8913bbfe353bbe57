// The portable bodies of group_norm and layer_norm on the host's threads.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "composable_kernels/fused/group_norm_parts.hpp"
#include "composable_kernels/fused/group_norm_whole.hpp"
#include "composable_kernels/fused/layer_norm.hpp"
#include "composable_kernels/hopper/group_norm_cluster.hpp"
#include "composable_kernels/hopper/group_norm_resident.hpp"

#include "kernels/norm/norm_configs.hpp"
#include "kernels/norm/norm_impl.hpp"
#include "kernels/norm/norm_plan.hpp"
#include "kernels/scalar_launch.hpp"

namespace rocm_sd {
namespace {

// Compute units that the plan is made for; few, and constant, so that the order of the sums is.
constexpr int kComputeUnits = 4;

template <class Storage, int kWidth>
struct PartsCfg {
  using T = Storage;
  static constexpr int kVec = kWidth, kThreads = norm_configs::kPartsThreads;
};
// 64 threads' work by one: the size of a problem that unit tests like.
template <class Storage, int kWidth>
struct WholeCfg {
  using T = Storage;
  static constexpr int kVec = kWidth, kThreads = 64, kPasses = 64, kPacks = 32;
};
template <class Storage>
struct ClusterCfg {
  using T = Storage;
  static constexpr int kVec = norm_configs::full_pack(sizeof(T));
  static constexpr int kThreads = norm_configs::kClusterThreads, kPasses = kThreads, kPacks = 16;
};
template <class Storage>
struct ResidentCfg {
  using T = Storage;
  static constexpr int kVec = norm_configs::full_pack(sizeof(T)), kThreads = norm_configs::kResidentThreads;
};
template <class Storage>
struct RowCfg {
  using T = Storage;
  static constexpr int kVec = norm_configs::full_pack(sizeof(T)), kLanes = 1, kPacks = 512;
};

template <class T, int kVec>
void in_parts(const GroupNormProblem& p, const GroupNormPlan& plan, float* partial, float* merged) {
  using Cfg = PartsCfg<T, kVec>;
  GroupNormParams<T> params = group_norm_params<T>(p, plan, partial, merged);
  const int64_t slabs = p.images * (p.channels / plan.slab);
  for_each_block(slabs * plan.parts, [&](const Block<Scalar>& block) {
    group_norms::MeasureLds<Cfg::kThreads, kVec> lds;
    group_norm_measure_body<Scalar, Cfg>(params, block, lds);
  });
  if (plan.merge) {
    for_each_block(p.images * p.groups,
                   [&](const Block<Scalar>& block) { group_norm_merge_body(params, block); });
    params.partial = merged;
    params.parts = 1;
    params.part = params.pixels;
  }
  for_each_block(slabs * plan.pieces, [&](const Block<Scalar>& block) {
    group_norms::NormaliseLds<Cfg::kThreads> lds;
    group_norm_normalise_body<Scalar, Cfg>(params, block, lds);
  });
}

template <class T, int kVec>
void whole(const GroupNormProblem& p, const GroupNormPlan& plan) {
  const GroupNormParams<T> params = group_norm_params<T>(p, plan, nullptr, nullptr);
  for_each_block(p.images * p.groups, [&](const Block<Scalar>& block) {
    float lds = 0;
    group_norm_whole_body<Scalar, WholeCfg<T, kVec>>(params, block, &lds);
  });
}

// A cluster of one workgroup.
template <class T>
void in_cluster(const GroupNormProblem& p, const GroupNormPlan& plan) {
  const GroupNormParams<T> params = group_norm_params<T>(p, plan, nullptr, nullptr);
  const int64_t slabs = p.channels / plan.slab;
  for_each_block(p.images * slabs, [&](const Block<Scalar>& block) {
    using Cfg = ClusterCfg<T>;
    const auto lds = std::make_unique<group_norms::ClusterLds<Cfg::kThreads>>();
    const group_norms::ClusterPlace place = {static_cast<int>(block.group() / slabs),
                                             static_cast<int>(block.group() % slabs), 0};
    group_norm_cluster_body<Scalar, Cfg>(params, block, place, *lds);
  });
}
std::optional<GroupNormPlan> cluster_plan(const GroupNormProblem& p) {
  const auto plans = group_norm_clusters(p, 1);
  return plans.empty() ? std::nullopt : std::optional(plans.front());
}

// Two parts of an image and the least LDS that a ring of packs takes, which small problems are enough for.
std::optional<GroupNormPlan> resident_plan(const GroupNormProblem& p) {
  GpuTraits traits;
  traits.compute_units = static_cast<int>(std::min<int64_t>(2 * p.images, 1 << 20));
  traits.lds_per_group = 232448;
  return group_norm_resident(p, traits, 2, group_norms::kResidentAhead + 1);
}
template <class T>
void resident(const GroupNormProblem& p, const GroupNormPlan& plan, float* partial) {
  using Cfg = ResidentCfg<T>;
  struct Lds {
    group_norms::ResidentLds<Cfg::kThreads> norm;
    std::vector<Pack<T, Cfg::kVec>> kept;
  };
  const GroupNormResidentParams<T> params{group_norm_params<T>(p, plan, partial, nullptr),
                                          plan.resident_packs};
  std::vector<Lds> lds(static_cast<size_t>(p.images * plan.parts));
  for (Lds& one : lds) one.kept.resize(static_cast<size_t>(resident_bytes(p, plan)) / sizeof(one.kept[0]));
  for_each_block(p.images * plan.parts, [&](const Block<Scalar>& block) {
    Lds& one = lds[static_cast<size_t>(block.group())];
    group_norm_resident_measure<Scalar, Cfg>(params, block, one.kept.data(), one.norm);
  });
  for_each_block(p.images * plan.parts, [&](const Block<Scalar>& block) {
    Lds& one = lds[static_cast<size_t>(block.group())];
    group_norm_resident_normalise<Scalar, Cfg>(params, block, one.kept.data(), one.norm);
  });
}

// Calls body with the storage type and the width of a pack, as types.
template <class Body>
void with_pack(DType dtype, int vec, const Body& body) {
  with_storage(dtype, [&](auto storage) {
    if (vec == 1) return body(storage, std::integral_constant<int, 1>{});
    if (vec == 2) return body(storage, std::integral_constant<int, 2>{});
    if (vec == 4) return body(storage, std::integral_constant<int, 4>{});
    body(storage, std::integral_constant<int, 8>{});
  });
}

// The widest pack that the whole-group body may use.
int whole_pack(const GroupNormProblem& p) {
  int vec = 8;
  while (vec > 1 && (p.channels / p.groups % vec || p.first_channels() % vec)) vec /= 2;
  return vec;
}

void layer_norm_scalar(const LayerNormProblem& p) {
  with_storage(p.dtype, [&](auto storage) {
    using Cfg = RowCfg<decltype(storage)>;
    using T = Cfg::T;
    const LayerNormParams<T> params{static_cast<const T*>(p.x),    p.gain, p.bias,
                                    static_cast<T*>(p.y),          p.rows, static_cast<int32_t>(p.cols),
                                    static_cast<uint32_t>(p.rows), p.eps,  p.to_bf16};
    const bool fits = p.cols % Cfg::kVec == 0 && p.cols <= Cfg::kPacks * Cfg::kVec;
    for_each_block(p.rows, [&](const Block<Scalar>& block) {
      fits ? layer_norm_body<Scalar, Cfg>(params, block) : layer_norm_long_body<Scalar, Cfg>(params, block);
    });
  });
}

}  // namespace

Refusal supports_group_norm_scalar(const Exec& ex, const GroupNormProblem& p) {
  if (const Refusal refusal = supports_host(ex, p)) return refusal;
  return refuse_group_norm(p);
}
Refusal supports_group_norm_whole_scalar(const Exec& ex, const GroupNormProblem& p) {
  if (const Refusal refusal = supports_host(ex, p)) return refusal;
  using Cfg = WholeCfg<float, 1>;
  const int64_t columns = p.channels / p.groups / whole_pack(p);
  if (columns > Cfg::kThreads || Cfg::kThreads / std::max<int64_t>(columns, 1) * Cfg::kPacks < p.pixels)
    return "takes only groups that fit in registers";
  return std::nullopt;
}

void run_group_norm_scalar(Exec& ex, const GroupNormProblem& problem) {
  if (problem.images * problem.pixels * problem.channels == 0) return;
  GpuTraits traits;
  traits.compute_units = kComputeUnits;
  GroupNormPlan plan = group_norm_candidates(problem, traits).back();
  plan.merge = plan.parts > 2;  // both ways are met by small problems
  const Tensor partial = ex.alloc({problem.images, plan.parts, problem.groups, 2}, DType::kF32);
  const Tensor merged = ex.alloc({problem.images, problem.groups, 2}, DType::kF32);
  ex.launch(op_info(problem, "scalar"),
            [problem, plan, partial = partial.as<float>(), merged = merged.as<float>()] {
              with_pack(problem.dtype, plan.vec, [&](auto storage, auto vec) {
                in_parts<decltype(storage), vec()>(problem, plan, partial, merged);
              });
            });
}
void run_group_norm_whole_scalar(Exec& ex, const GroupNormProblem& problem) {
  if (problem.images * problem.pixels * problem.channels == 0) return;
  const GroupNormPlan plan = {.vec = whole_pack(problem)};
  ex.launch(op_info(problem, "scalar_whole"), [problem, plan] {
    with_pack(problem.dtype, plan.vec,
              [&](auto storage, auto vec) { whole<decltype(storage), vec()>(problem, plan); });
  });
}
Refusal supports_group_norm_cluster_scalar(const Exec& ex, const GroupNormProblem& p) {
  if (const Refusal refusal = supports_host(ex, p)) return refusal;
  if (p.images * p.pixels * p.channels > 0 && !cluster_plan(p))
    return "takes only whole packs of at most two groups that fit in registers";
  return std::nullopt;
}
void run_group_norm_cluster_scalar(Exec& ex, const GroupNormProblem& problem) {
  if (problem.images * problem.pixels * problem.channels == 0) return;
  ex.launch(op_info(problem, "scalar_cluster"), [problem, plan = *cluster_plan(problem)] {
    with_storage(problem.dtype, [&](auto storage) { in_cluster<decltype(storage)>(problem, plan); });
  });
}
Refusal supports_group_norm_resident_scalar(const Exec& ex, const GroupNormProblem& p) {
  if (const Refusal refusal = supports_host(ex, p)) return refusal;
  if (p.images * p.pixels * p.channels > 0 && !resident_plan(p))
    return "takes only whole packs of at most two groups";
  return std::nullopt;
}
void run_group_norm_resident_scalar(Exec& ex, const GroupNormProblem& problem) {
  if (problem.images * problem.pixels * problem.channels == 0) return;
  const GroupNormPlan plan = *resident_plan(problem);
  const Tensor partial = ex.alloc({problem.images, plan.parts, problem.groups, 2}, DType::kF32);
  ex.launch(op_info(problem, "scalar_resident"), [problem, plan, partial = partial.as<float>()] {
    with_storage(problem.dtype, [&](auto storage) { resident<decltype(storage)>(problem, plan, partial); });
  });
}
void run_layer_norm_scalar(Exec& ex, const LayerNormProblem& problem) {
  launch_problem(ex, problem, "scalar", layer_norm_scalar);
}

}  // namespace rocm_sd
