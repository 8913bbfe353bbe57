// attention on a GPU: flash attention in 16 bits, one wave per query for everything else.
#include <algorithm>
#include <limits>
#include <set>

#include "composable_kernels/fused/flash_params.hpp"
#include "kernels/attention/attention_params.hpp"
#include "kernels/attention/flash_plan.hpp"
#include "kernels/choice_memo.hpp"
#include "kernels/family/cost_model.hpp"
#include "kernels/family/explanation.hpp"
#include "kernels/gpu_launch.hpp"

namespace rocm_sd {
namespace {

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }
bool is_aligned(const AttentionProblem::Rows& rows) {
  return is_aligned(rows.data) && rows.image % 8 == 0 && rows.row % 8 == 0;
}

// The kernels give the pointers their type; all 16-bit types are alike here.
using Params = FlashParams<uint16_t>;

Params params_of(const AttentionProblem& p, const FlashPlan& plan) {
  constexpr float kLog2e = 1.44269504088896f;
  const auto rows = [](const AttentionProblem::Rows& r) {
    return Params::Rows{static_cast<const uint16_t*>(r.data), r.image, r.row};
  };
  Params params{.q = rows(p.q), .k = rows(p.k), .v = rows(p.v), .y = static_cast<uint16_t*>(p.y)};
  params.mask = p.mask;
  for (int i = 0; i < 4; ++i) params.mask_strides[i] = p.mask_strides[i];
  params.heads = static_cast<int32_t>(p.heads);
  params.batch_heads = static_cast<int32_t>(p.batch * p.heads);
  params.queries = static_cast<int32_t>(p.queries);
  params.keys = static_cast<int32_t>(p.keys);
  params.splits = plan.splits;
  params.keys_per_split = static_cast<int32_t>(plan.keys_per_split);
  params.scale = p.scale * kLog2e;
  params.causal = p.causal;
  return params;
}

// TMA's view of keys or values.
HeadBoxes boxes_of(const AttentionProblem& p, const AttentionProblem::Rows& rows, int box_rows) {
  const auto heads = static_cast<uint64_t>(p.heads), dim = static_cast<uint64_t>(p.head_dim);
  const auto keys = static_cast<uint64_t>(p.keys), row = static_cast<uint64_t>(rows.row) * sizeof(uint16_t);
  return {rows.data, static_cast<uint64_t>(p.batch),
          keys,      heads,
          dim,       p.batch > 1 ? static_cast<uint64_t>(rows.image) * sizeof(uint16_t) : keys * row,
          row,       static_cast<uint32_t>(box_rows)};
}

// All of a problem that a plan may depend on; the signs of its scale, not its size.
using FlashKey = std::tuple<GpuKey, int64_t, int64_t, int64_t, int64_t, int64_t, DType, bool, bool, bool>;
FlashKey key_of(const GpuTraits& traits, const AttentionProblem& p) {
  return {gpu_key(traits), p.batch, p.heads,  p.queries, p.keys,
          p.head_dim,      p.dtype, p.masked, p.causal,  p.scale > 0};
}

// Nothing where there is no kernel.
const std::optional<FlashPlan>& default_plan(const Exec& ex, const AttentionProblem& p) {
  thread_local ChoiceMemo<FlashKey, std::optional<FlashPlan>> memo;
  const GpuTraits& traits = gpu_device(ex)->traits();
  return memo.of(key_of(traits, p), [&]() -> std::optional<FlashPlan> {
    if (flash_candidates(p, traits).empty()) return std::nullopt;
    return default_config(p, traits);
  });
}

Refusal supports_plan(const Exec& ex, const AttentionProblem& p, const std::optional<FlashPlan>& plan) {
  const GpuTraits& traits = gpu_device(ex)->traits();
  if (!plan)
    return concat("has no kernel for ", p.dtype, " and head_dim ", p.head_dim, " on ", traits.arch, " with ",
                  traits.lds_per_group, " bytes of LDS");
  if (!is_aligned(p.q) || !is_aligned(p.k) || !is_aligned(p.v) || !is_aligned(p.y))
    return "takes rows that begin at multiples of 16 bytes only";
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;
  if (p.keys > kMax || p.batch * p.heads > 65535 || p.batch * p.heads * p.queries > kMax)
    return "takes at most 2^30 queries of all heads, 2^30 keys and 65535 heads of images";
  // Buffer loads of AMD's kernels reach 2^31 bytes, of which a tile of at most 256 rows is a part.
  constexpr int64_t kMaxRow = 1 << 21;
  const auto near = [](const AttentionProblem::Rows& r) { return r.row >= 0 && r.row <= kMaxRow; };
  if (!near(p.q) || !near(p.k) || !near(p.v)) return "takes rows at most 2^21 elements apart";
  return supports_kernel(ex, plan->kernel.name);
}

Refusal supports_flash(const Exec& ex, const AttentionProblem& p) {
  return supports_plan(ex, p, default_plan(ex, p));
}

std::string wave_kernel(const AttentionProblem& p) {
  return concat("attention_wave_", p.dtype, "_d", p.head_dim <= 128 ? 128 : 512);
}

std::optional<FlashPlan> plan_named(const Exec& ex, const AttentionProblem& p, const std::string& name) {
  thread_local ChoiceMemo<std::pair<FlashKey, std::string>, std::optional<FlashPlan>> memo;
  const GpuTraits& traits = gpu_device(ex)->traits();
  return memo.of({key_of(traits, p), name}, [&] { return choice_of(flash_plans(p, traits), name); });
}

Explanation explain(const AttentionProblem& p, const GpuTraits& traits) {
  const CostModel& costs = cost_model(kernel_tables(traits).name);
  const ModelledCosts* modelled = costs.modelled_for(traits.arch);
  Explanation out{"gpu", costs.family, "no unit; by modelled times nanoseconds", {}, {}};
  std::set<FlashAlgorithm> taken;
  for (const FlashPlan& plan : flash_plans(p, traits)) {
    const AttentionMapRow& row = *plan.kernel.row;
    taken.insert(row.algorithm);
    const AttentionCosts::Entry& relative = costs.attention.entry(row.cost);
    out.candidates.push_back({.choice = describe(plan),
                              .algorithm = to_text(row.algorithm),
                              .reason = row.reason,
                              .source = modelled && find_kernel_time(*modelled, plan.kernel.name)
                                            ? source_text(costs, modelled->source)
                                            : concat("relative cost ", row.cost, " = ", relative.cost, ", ",
                                                     source_text(costs, relative.source)),
                              .cost_name = row.cost,
                              .cost = plan.cost});
  }
  for (const AttentionMapRow& row : attention_map())
    if (!taken.contains(row.algorithm))
      out.refused.push_back(
          concat(to_text(row.algorithm), ": takes ", conditions_of(row), " on ", to_text(row.families)));
  return out;
}

std::vector<std::string> config_names(const Exec& ex, const AttentionProblem& p) {
  if (ExplanationRecord* record = ExplanationRecord::current())
    record->add(explain(p, gpu_device(ex)->traits()));
  std::vector<std::string> names;
  for (const FlashPlan& plan : flash_plans(p, gpu_device(ex)->traits())) names.push_back(describe(plan));
  return names;
}

Refusal supports_config(const Exec& ex, const AttentionProblem& p, const std::string& config) {
  const auto plan = plan_named(ex, p, config);
  if (!plan) return "is no configuration for it";
  if (const Refusal refusal = supports_kernel(ex, plan->kernel.name)) return refusal;
  if (plan->splits > 1) return supports_kernel(ex, concat("flash_merge_", p.dtype));
  return std::nullopt;
}

void run_config(Exec& ex, const AttentionProblem& p, const std::string& config) {
  run_flash(ex, p, plan_named(ex, p, config).value());
}

}  // namespace

const Configs<AttentionProblem> kFlashConfigs = {config_names, supports_config, run_config};

namespace {

// partials: what splits write from `first` on; null: one split, whose result is y.
void launch_flash(Exec& ex, const AttentionProblem& p, const FlashPlan& plan, const FlashPartials* partials,
                  int first) {
  GpuDevice& device = *gpu_device(ex);
  const GpuTraits& traits = device.traits();
  Params params = params_of(p, plan);
  if (partials) {
    params.splits = partials->count;
    params.partial_sums = partials->sums.narrow(0, first, plan.splits).as<float>();
    params.partial_stats = partials->stats.narrow(0, first, plan.splits).as<float>();
  }
  GpuGrid grid{static_cast<uint32_t>(plan.tiles), static_cast<uint32_t>(p.batch * p.heads),
               static_cast<uint32_t>(plan.splits)};
  params.order = group_order(traits, grid);
  const auto launch = [&](const auto& arguments) {
    OpInfo info = op_info(p, concat("gpu ", plan.kernel.name).c_str());
    if (partials) info.bytes += partials->bytes_of(plan.splits) - p.output_bytes();
    launch_kernel(ex, std::move(info), *device.find_kernel(plan.kernel.name), grid,
                  static_cast<uint32_t>(plan.kernel.waves * traits.lanes),
                  kernel_tables(traits).dynamic_lds(plan.kernel.lds_bytes), arguments);
  };
  if (plan.kernel.algorithm == FlashAlgorithm::kTma) {
    FlashTmaParams<uint16_t> tma{{}, {}, params};
    if (p.k.data) {  // not while planning
      device.map_boxes(&tma.k, boxes_of(p, p.k, plan.kernel.keys));
      device.map_boxes(&tma.v, boxes_of(p, p.v, plan.kernel.keys));
    }
    launch(tma);
  } else if (plan.kernel.algorithm == FlashAlgorithm::kSingleTileKv) {
    const int64_t tiles = plan.tiles * p.batch * p.heads;
    grid = {.x = static_cast<uint32_t>((tiles + plan.run_tiles - 1) / plan.run_tiles),
            .early = p.pdl_keys_ready};
    launch(FlashSingleTileKvParams<uint16_t>{params, static_cast<int32_t>(tiles),
                                             static_cast<int32_t>(plan.tiles),
                                             static_cast<int32_t>(plan.run_tiles), !p.pdl_keys_ready});
  } else {
    launch(params);
  }
}

}  // namespace

FlashPartials::FlashPartials(Exec& ex, const AttentionProblem& p, int splits) : count(splits) {
  const int64_t rows = p.batch * p.heads * p.queries;
  sums = ex.alloc({splits, rows, p.head_dim}, DType::kF32);
  stats = ex.alloc({splits, rows, 2}, DType::kF32);
}

void run_flash_splits(Exec& ex, const AttentionProblem& p, const FlashPlan& plan,
                      const FlashPartials& partials, int first) {
  launch_flash(ex, p, plan, &partials, first);
}

void merge_flash(Exec& ex, const AttentionProblem& p, const FlashPartials& partials) {
  constexpr int64_t kRowsOfGroup = 4;  // a wave each
  const int64_t rows = p.batch * p.heads * p.queries;
  const FlashMergeParams<uint16_t> merge{partials.sums.as<float>(),        partials.stats.as<float>(),
                                         static_cast<uint16_t*>(p.y),      static_cast<int32_t>(p.heads),
                                         static_cast<int32_t>(p.queries),  static_cast<int32_t>(rows),
                                         static_cast<int32_t>(p.head_dim), partials.count};
  launch_kernel(
      ex,
      {p.op(), concat("gpu merge ", p.describe()), 0, partials.bytes_of(partials.count) + p.output_bytes()},
      *gpu_device(ex)->find_kernel(concat("flash_merge_", p.dtype)),
      {static_cast<uint32_t>((rows + kRowsOfGroup - 1) / kRowsOfGroup)},
      static_cast<uint32_t>(kRowsOfGroup * gpu_device(ex)->traits().lanes), 0, merge);
}

void run_flash(Exec& ex, const AttentionProblem& p, const FlashPlan& plan) {
  if (p.batch * p.heads * p.queries == 0) return;
  if (plan.splits == 1) return launch_flash(ex, p, plan, nullptr, 0);
  const FlashPartials partials(ex, p, plan.splits);
  launch_flash(ex, p, plan, &partials, 0);
  merge_flash(ex, p, partials);
}

Refusal supports_partial_flash(const Exec& ex, const AttentionProblem& p) {
  if (!gpu_device(ex)) return "runs on a GPU only";
  if (p.dtype != DType::kF16 && p.dtype != DType::kBF16) return "takes f16 and bf16 only";
  if (p.masked || p.causal) return "takes all keys for all queries";
  if (p.batch * p.heads * p.queries == 0 || p.keys == 0) return "takes no empty problem";
  if (const Refusal refusal = supports_plan(ex, p, partial_plan(p, gpu_device(ex)->traits()))) return refusal;
  return supports_kernel(ex, concat("flash_merge_", p.dtype));
}
Refusal supports_attention_gpu(const Exec& ex, const AttentionProblem& problem) {
  if (!gpu_device(ex)) return "runs on a GPU only";
  if (problem.dtype != DType::kF16 && problem.dtype != DType::kBF16) return "takes f16 and bf16 only";
  return supports_flash(ex, problem);
}
void run_attention_gpu(Exec& ex, const AttentionProblem& problem) {
  run_flash(ex, problem, default_plan(ex, problem).value());
}

Refusal supports_attention_gpu_wave(const Exec& ex, const AttentionProblem& p) {
  if (!gpu_device(ex)) return "runs on a GPU only";
  if (p.head_dim > 512) return concat("head_dim ", p.head_dim, " exceeds 512");
  return supports_kernel(ex, wave_kernel(p));
}
void run_attention_gpu_wave(Exec& ex, const AttentionProblem& p) {
  const int64_t rows = p.batch * p.heads * p.queries;
  if (rows * p.head_dim == 0) return;
  GpuDevice& device = *gpu_device(ex);
  const GpuTraits& traits = device.traits();
  AttentionParams<float> params = attention_params<float>(p);
  params.workgroups = static_cast<uint32_t>(std::min<int64_t>(rows, int64_t{traits.compute_units} * 64));
  launch_kernel(ex, op_info(p, "gpu_wave"), *device.find_kernel(wave_kernel(p)), {params.workgroups},
                static_cast<uint32_t>(traits.lanes), 0, params);
}

}  // namespace rocm_sd
