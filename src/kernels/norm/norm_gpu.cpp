// group_norm and layer_norm on a GPU: which kernels, and their grids.
#include <algorithm>
#include <limits>

#include "composable_kernels/fused/layer_norm.hpp"
#include "kernels/choice_memo.hpp"
#include "kernels/gpu_launch.hpp"
#include "kernels/norm/norm_configs.hpp"
#include "kernels/norm/norm_plan.hpp"

namespace rocm_sd {
namespace {

using namespace norm_configs;

std::string kernel_name(const char* form, DType dtype, int vec) {
  return concat("group_norm_", form, "_", dtype, "_v", vec);
}

template <class Params>
void launch(Exec& ex, OpInfo info, const std::string& kernel, int64_t workgroups, int threads,
            const Params& params) {
  launch_kernel(ex, std::move(info), *gpu_device(ex)->find_kernel(kernel),
                {static_cast<uint32_t>(workgroups)}, static_cast<uint32_t>(threads), 0, params);
}

// The kernels do not look behind the pointers' types, which only count elements.
void run_whole(Exec& ex, const GroupNormProblem& p, const GroupNormPlan& plan) {
  const std::string name = concat(kernel_name("whole", p.dtype, plan.vec), "_t", plan.whole_threads);
  launch(ex, op_info(p, "gpu"), name, p.images * p.groups, plan.whole_threads,
         group_norm_params<float>(p, plan, nullptr, nullptr));
}

void run_in_clusters(Exec& ex, const GroupNormProblem& p, const GroupNormPlan& plan) {
  const auto cut = [](int64_t n) { return static_cast<uint32_t>(n); };
  const GpuGrid grid{cut(plan.pieces), cut(p.channels / plan.slab), cut(p.images), cut(plan.pieces)};
  const std::string name = concat("group_norm_cluster_", p.dtype, "_p", plan.cluster_packs);
  launch_kernel(ex, op_info(p, "gpu"), *gpu_device(ex)->find_kernel(name), grid, kClusterThreads, 0,
                group_norm_params<float>(p, plan, nullptr, nullptr));
}

void run_resident(Exec& ex, const GroupNormProblem& p, const GroupNormPlan& plan) {
  const Tensor partial = ex.alloc({p.images, plan.parts, p.groups, 2}, DType::kF32);
  const GroupNormResidentParams<float> params{group_norm_params<float>(p, plan, partial.as<float>(), nullptr),
                                              plan.resident_packs};
  GpuGrid grid{static_cast<uint32_t>(p.images * plan.parts)};
  grid.together = true;
  launch_kernel(ex, op_info(p, "gpu"), *gpu_device(ex)->find_kernel(concat("group_norm_resident_", p.dtype)),
                grid, kResidentThreads, static_cast<uint32_t>(resident_bytes(p, plan)), params);
}

void run_in_parts(Exec& ex, const GroupNormProblem& p, const GroupNormPlan& plan) {
  const Tensor partial = ex.alloc({p.images, plan.parts, p.groups, 2}, DType::kF32);
  const Tensor merged = ex.alloc({p.images, p.groups, 2}, DType::kF32);
  auto params = group_norm_params<float>(p, plan, partial.as<float>(), merged.as<float>());
  const int64_t slabs = p.images * (p.channels / plan.slab);
  // The bytes and operations of the op are booked on its last kernel but for the second reading of x.
  const double bytes = p.bytes() / 2;
  launch(ex, {p.op(), concat("gpu measure ", p.describe()), p.flops() / 2, bytes},
         kernel_name("measure", p.dtype, plan.vec), slabs * plan.parts, kPartsThreads, params);
  if (plan.merge) {
    launch(ex, {p.op(), concat("gpu merge ", p.describe()), 0, 0}, "group_norm_merge", p.images * p.groups,
           gpu_device(ex)->traits().lanes, params);
    params.partial = params.merged;
    params.parts = 1;
    params.part = params.pixels;
  }
  launch(ex, {p.op(), concat("gpu normalise ", p.describe()), p.flops() / 2, 2 * bytes},
         kernel_name("normalise", p.dtype, plan.vec), slabs * plan.pieces, kPartsThreads, params);
}

// How rows of so many columns are taken; null: element by element.
const LayerNormRow* layer_norm_row(const LayerNormProblem& p) {
  const int64_t vec = full_pack(static_cast<int>(dtype_size(p.dtype)));
  if (!p.aligned || p.cols % vec) return nullptr;
  for (const LayerNormRow& row : kLayerNormRows)
    if (p.cols <= row.lanes * row.packs * vec) return &row;
  return nullptr;
}

// The kernels of a plan, in any order.
std::vector<std::string> kernels_of(const GroupNormProblem& p, const GroupNormPlan& plan) {
  if (plan.resident_packs) return {concat("group_norm_resident_", p.dtype)};
  if (plan.cluster_packs) return {concat("group_norm_cluster_", p.dtype, "_p", plan.cluster_packs)};
  if (plan.whole_threads) return {concat(kernel_name("whole", p.dtype, plan.vec), "_t", plan.whole_threads)};
  std::vector<std::string> names = {kernel_name("measure", p.dtype, plan.vec),
                                    kernel_name("normalise", p.dtype, plan.vec)};
  if (plan.merge) names.emplace_back("group_norm_merge");
  return names;
}

// All of a problem that a plan may depend on.
using GroupNormKey = std::tuple<GpuKey, int64_t, int64_t, int64_t, int64_t, int64_t, DType, bool, bool, bool>;
GroupNormKey key_of(const GpuTraits& traits, const GroupNormProblem& p) {
  return {gpu_key(traits), p.images, p.pixels, p.channels, p.second_channels,
          p.groups,        p.dtype,  p.silu,   p.to_bf16,  p.aligned};
}

const GroupNormPlan& default_plan(const Exec& ex, const GroupNormProblem& p) {
  thread_local ChoiceMemo<GroupNormKey, GroupNormPlan> memo;
  const GpuTraits& traits = gpu_device(ex)->traits();
  return memo.of(key_of(traits, p), [&] { return default_group_norm(p, traits); });
}

std::optional<GroupNormPlan> plan_named(const Exec& ex, const GroupNormProblem& p, const std::string& name) {
  if (p.images * p.pixels * p.channels == 0) return std::nullopt;
  thread_local ChoiceMemo<std::pair<GroupNormKey, std::string>, std::optional<GroupNormPlan>> memo;
  const GpuTraits& traits = gpu_device(ex)->traits();
  return memo.of({key_of(traits, p), name}, [&]() -> std::optional<GroupNormPlan> {
    for (const GroupNormPlan& plan : group_norm_candidates(p, traits))
      if (plan.describe() == name) return plan;
    return std::nullopt;
  });
}

std::vector<std::string> config_names(const Exec& ex, const GroupNormProblem& p) {
  std::vector<std::string> names;
  if (p.images * p.pixels * p.channels == 0) return names;
  for (const GroupNormPlan& plan : group_norm_candidates(p, gpu_device(ex)->traits()))
    if (std::string name = plan.describe(); std::ranges::find(names, name) == names.end())
      names.push_back(std::move(name));
  return names;
}

Refusal supports_config(const Exec& ex, const GroupNormProblem& p, const std::string& config) {
  const auto plan = plan_named(ex, p, config);
  if (!plan) return "is no configuration for it";
  for (const std::string& kernel : kernels_of(p, *plan))
    if (const Refusal refusal = supports_kernel(ex, kernel)) return refusal;
  return std::nullopt;
}

void run_config(Exec& ex, const GroupNormProblem& p, const std::string& config) {
  run_group_norm_plan(ex, p, plan_named(ex, p, config).value());
}

}  // namespace

const Configs<GroupNormProblem> kGroupNormConfigs = {config_names, supports_config, run_config};

void run_group_norm_plan(Exec& ex, const GroupNormProblem& problem, const GroupNormPlan& plan) {
  if (plan.resident_packs) return run_resident(ex, problem, plan);
  if (plan.cluster_packs) return run_in_clusters(ex, problem, plan);
  plan.whole_threads ? run_whole(ex, problem, plan) : run_in_parts(ex, problem, plan);
}

Refusal supports_group_norm_gpu(const Exec& ex, const GroupNormProblem& p) {
  if (const Refusal refusal = supports_kernel(ex, kernel_name("measure", p.dtype, 1))) return refusal;
  return refuse_group_norm(p);
}
void run_group_norm_gpu(Exec& ex, const GroupNormProblem& problem) {
  if (problem.images * problem.pixels * problem.channels == 0) return;
  run_group_norm_plan(ex, problem, default_plan(ex, problem));
}

Refusal supports_layer_norm_gpu(const Exec& ex, const LayerNormProblem& p) {
  if (const Refusal refusal = supports_kernel(ex, concat("layer_norm_", p.dtype, "_long"))) return refusal;
  if (p.cols > std::numeric_limits<int32_t>::max() / 2) return "takes no rows of a billion columns";
  return std::nullopt;
}
void run_layer_norm_gpu(Exec& ex, const LayerNormProblem& p) {
  if (p.rows * p.cols == 0) return;
  const GpuTraits& traits = gpu_device(ex)->traits();
  const LayerNormRow* row = layer_norm_row(p);
  const int64_t per_group = int64_t{kLayerNormWaves} * (row ? traits.lanes / row->lanes : 1);
  // As many workgroups as the device holds at once: a wave keeps gain and bias for its further rows.
  const int64_t most = int64_t{traits.compute_units} * kLayerNormWorkgroups;
  const int64_t workgroups = std::min((p.rows + per_group - 1) / per_group, most);
  const LayerNormParams<float> params{static_cast<const float*>(p.x),    p.gain, p.bias,
                                      static_cast<float*>(p.y),          p.rows, static_cast<int32_t>(p.cols),
                                      static_cast<uint32_t>(workgroups), p.eps,  p.to_bf16};
  const std::string form = row ? concat("l", row->lanes, "_p", row->packs) : "long";
  launch(ex, op_info(p, "gpu"), concat("layer_norm_", p.dtype, "_", form), workgroups,
         kLayerNormWaves * traits.lanes, params);
}

}  // namespace rocm_sd
