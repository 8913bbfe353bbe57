#include "kernels/attention/flash_plan.hpp"

#include <algorithm>

#include "composable_kernels/fused/flash_params.hpp"
#include "kernels/family/cost_model.hpp"

namespace rocm_sd {
namespace {

constexpr int kSplits[] = {1, 2, 3, 4, 6, 8, 12, 16};

int64_t divide_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

// The kernels of a family that take a problem, by its tables and attention_map().
class Candidates {
 public:
  Candidates(const AttentionProblem& problem, const GpuTraits& traits)
      : problem_(problem),
        traits_(traits),
        family_(kernel_tables(traits)),
        costs_(cost_model(family_.name).attention),
        type_(dtype_name(problem.dtype)),
        pad_(flash_row_pad(traits.lanes)) {}

  void add(const FlashConfig& c) {
    take(FlashAlgorithm::kWaves, c.head_dim, {c.queries, c.keys},
         {kernel_name(c, type(), mask_of(problem_)).c_str(), c.queries * c.waves, c.keys, c.waves,
          c.occupancy, 2 * flash_lds_elements(flash_lds(c, transposed(), pad_))});
  }
  void add(const FlashWgmmaConfig& c) {
    take(FlashAlgorithm::kWgmma, c.head_dim, {64 * c.warpgroups, 64},
         {kernel_name(c, type()).c_str(), 64 * c.warpgroups, 64, 4 * c.warpgroups, c.occupancy,
          flash_lds_bytes(c)});
  }
  void add(const FlashTmaConfig& c) {
    if (!traits_.tma) return;
    take(FlashAlgorithm::kTma, c.head_dim, {64 * c.warpgroups, c.keys, c.prefetch},
         {kernel_name(c, type()).c_str(), 64 * c.warpgroups, c.keys, 4 * c.warpgroups, c.occupancy,
          flash_lds_bytes(c)});
  }
  void add(const FlashSingleTileKvConfig& c) {
    if (problem_.keys > c.keys) return;
    take(FlashAlgorithm::kSingleTileKv, c.head_dim, {64, c.keys},
         {kernel_name(c, type()).c_str(), 64, c.keys, 4 * c.warpgroups, c.occupancy, flash_lds_bytes(c)});
  }
  void add(const FlashLargeDConfig& c) {
    take(FlashAlgorithm::kLargeD, c.head_dim, {c.queries, c.keys},
         {kernel_name(c, type()).c_str(), c.queries, c.keys, c.waves_q * c.waves_k, 1,
          2 * flash_large_d_lds_elements(flash_lds(c, transposed(), pad_))});
  }
  void add(const FlashWgmmaLargeDConfig& c) {
    take(FlashAlgorithm::kWgmmaLargeD, c.head_dim, {c.queries, c.keys},
         {kernel_name(c, type()).c_str(), c.queries, c.keys, 4 * c.warpgroups, 1, flash_lds_bytes(c)});
  }

  std::vector<FlashKernel> all() {
    const auto add_all = [this](const auto& table) {
      for (const auto& config : table) add(config);
    };
    add_all(mask_of(problem_) == FlashMask::kAny ? family_.flash_any_mask : family_.flash);
    add_all(family_.flash_wgmma);
    add_all(family_.flash_tma);
    add_all(family_.flash_single_tile_kv);
    add_all(family_.flash_large_d);
    add_all(family_.flash_wgmma_large_d);
    return std::move(fitting_);
  }

 private:
  const char* type() const { return type_.c_str(); }
  bool transposed() const { return family_.values == ValueLayout::kTransposed; }

  void take(FlashAlgorithm algorithm, int head_dim, const FlashTile& tile, FlashKernel kernel) {
    if (head_dim != problem_.head_dim || static_cast<size_t>(kernel.lds_bytes) > traits_.lds_per_group)
      return;
    kernel.algorithm = algorithm;
    kernel.row = attention_row(family_, problem_, algorithm, tile);
    if (!kernel.row) return;
    kernel.relative_cost = costs_.of(kernel.row->cost);
    fitting_.push_back(std::move(kernel));
  }

  const AttentionProblem& problem_;
  const GpuTraits& traits_;
  const KernelTables& family_;
  const AttentionCosts& costs_;
  std::string type_;
  int pad_;
  std::vector<FlashKernel> fitting_;
};

}  // namespace

std::vector<FlashKernel> flash_candidates(const AttentionProblem& p, const GpuTraits& traits) {
  return Candidates(p, traits).all();
}

FlashPlan plan_flash(const FlashKernel& kernel, int splits, const AttentionProblem& p,
                     const GpuTraits& traits) {
  FlashPlan plan{.kernel = kernel};
  plan.tiles = divide_up(p.queries, kernel.queries);
  const int64_t key_tiles = std::max<int64_t>(divide_up(p.keys, kernel.keys), 1);
  const int64_t per_split = divide_up(key_tiles, std::max(splits, 1));
  plan.splits = static_cast<int>(divide_up(key_tiles, per_split));
  plan.keys_per_split = per_split * kernel.keys;

  if (kernel.algorithm == FlashAlgorithm::kSingleTileKv) {
    // Equal runs, one to a workgroup that has room at once; the kernel holds the keys of two heads.
    const int64_t room = int64_t{traits.compute_units} * kernel.occupancy;
    plan.run_tiles = std::min(divide_up(plan.tiles * p.batch * p.heads, room), plan.tiles + 1);
    plan.run_tiles = std::max<int64_t>(plan.run_tiles, 1);
  }

  const int64_t workgroups = plan.tiles * p.batch * p.heads * plan.splits;
  const ModelledCosts* modelled = cost_model(kernel_tables(traits).name).modelled_for(traits.arch);
  if (const KernelTime* time = modelled ? find_kernel_time(*modelled, kernel.name) : nullptr) {
    plan.cost = launch_ns(*time, workgroups, traits.compute_units, static_cast<double>(per_split));
    if (plan.splits > 1)  // a head's sums, and for each query its greatest score and the sum of its weights
      plan.cost += reduce_ns(*modelled, static_cast<double>(p.batch * p.heads * p.queries * (p.head_dim + 2)),
                             plan.splits);
    return plan;
  }

  // The products of a tile and its softmax, in the time of a product: exponentials and conversions cost about
  // as much as 32 channels. A workgroup begins and ends in the time of about a tile.
  const double tile =
      kernel.relative_cost * kernel.queries * kernel.keys * (2.0 * static_cast<double>(p.head_dim) + 32);
  const double start = 24.0 * kernel.queries * static_cast<double>(p.head_dim) + 60000;
  const double group = start + static_cast<double>(per_split) * tile;
  const int64_t each = divide_up(workgroups, traits.compute_units);  // workgroups of the busiest compute unit
  // A compute unit is busy from about 8 waves of 32 lanes on.
  const double waves =
      static_cast<double>(std::min<int64_t>(each, kernel.occupancy) * kernel.waves) * traits.lanes / 32;
  plan.cost = static_cast<double>(each) * group / std::min(1.0, 0.4 + 0.6 * waves / 8);
  if (plan.splits > 1)  // the merge: one more launch, and partial sums written and read
    plan.cost += 6e6 + static_cast<double>(p.batch * p.heads * p.queries * plan.splits) *
                           static_cast<double>(p.head_dim) * 1500 / traits.compute_units;
  return plan;
}

std::string describe(const FlashPlan& plan) {
  return plan.splits > 1 ? concat(plan.kernel.name, "/", plan.splits) : plan.kernel.name;
}

std::vector<FlashPlan> flash_plans(const AttentionProblem& p, const GpuTraits& traits) {
  std::vector<FlashPlan> plans = {default_config(p, traits)};
  for (const FlashKernel& kernel : flash_candidates(p, traits))
    for (const int splits : kSplits) {
      FlashPlan plan = plan_flash(kernel, splits, p, traits);
      // More parts than twice fill the device gain nothing.
      const bool filled = plan.tiles * p.batch * p.heads * (splits - 1) >= 2LL * traits.compute_units;
      const auto same = [&](const FlashPlan& other) { return describe(other) == describe(plan); };
      if (!filled && std::ranges::none_of(plans, same)) plans.push_back(std::move(plan));
    }
  return plans;
}

// Of the kernels that `takes` takes.
static std::optional<FlashPlan> cheapest(const AttentionProblem& p, const GpuTraits& traits,
                                         const auto& takes) {
  std::optional<FlashPlan> best;
  for (const FlashKernel& kernel : flash_candidates(p, traits)) {
    if (!takes(kernel)) continue;
    for (const int splits : kSplits) {
      const FlashPlan plan = plan_flash(kernel, splits, p, traits);
      // Earlier rows are better where the estimate sees no difference.
      if (!best || plan.cost < 0.97 * best->cost) best = plan;
    }
  }
  return best;
}

FlashPlan default_config(const AttentionProblem& p, const GpuTraits& traits) {
  return cheapest(p, traits, [](const FlashKernel&) { return true; }).value_or(FlashPlan{});
}

std::optional<FlashPlan> partial_plan(const AttentionProblem& p, const GpuTraits& traits) {
  return cheapest(
      p, traits, [](const FlashKernel& kernel) { return kernel.algorithm != FlashAlgorithm::kSingleTileKv; });
}

}  // namespace rocm_sd
