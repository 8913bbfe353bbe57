// Which configuration linear takes on a GPU.
#include <algorithm>
#include <optional>
#include <span>

#include "kernels/family/cost_model.hpp"
#include "kernels/family/kernel_tables.hpp"
#include "kernels/gemm/linear_gpu.hpp"
#include "kernels/gemm/linear_params.hpp"
#include "kernels/gemm/linear_splits.hpp"
#include "kernels/tma_plan.hpp"

namespace rocm_sd {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The time of a choice in nanoseconds by modelled times of its kernel; nothing where there are none.
std::optional<double> modelled_ns(const GpuTraits& traits, const LinearProblem& p, const GemmChoice& choice) {
  const ModelledCosts* of = cost_model(kernel_tables(traits).name).modelled_for(traits.arch);
  const KernelTime* kernel =
      of ? find_kernel_time(*of, gemm_kernel_name(traits, choice, p.dtype(), p.gated)) : nullptr;
  if (!kernel) return std::nullopt;
  const TileShape& s = choice.config->shape;
  const int64_t columns = p.gated ? 2 * p.out : p.out;
  const int64_t tiles = ceil_div(p.rows, s.block_m) * ceil_div(columns, s.block_n);
  const int64_t all = ceil_div(p.in, s.block_k), steps = ceil_div(all, choice.splits),
                more = ceil_div(p.rank(), s.block_k);  // of the last part
  if (kernel_tables(traits).sums_parts())
    return shared_launch_ns(*of, *kernel, traits.compute_units,
                            {tiles, whole_tiles(traits, tiles, choice.split_tiles), choice.splits,
                             static_cast<double>(all + more), static_cast<double>(steps + more),
                             static_cast<double>(tile_floats(s))});
  double ns =
      launch_ns(*kernel, tiles * choice.splits, traits.compute_units, static_cast<double>(steps + more));
  if (choice.splits > 1) ns += reduce_ns(*of, static_cast<double>(p.rows * columns), choice.splits);
  return ns;
}

// The time of a choice in cycles of one compute unit, to compare choices by.
double estimated_cycles(const GpuTraits& traits, const LinearProblem& p, const GemmChoice& choice) {
  const GemmCosts& of = cost_model(kernel_tables(traits).name).gemm;
  const TileShape& s = choice.config->shape;
  const auto element = static_cast<double>(dtype_size(p.dtype()));
  const int64_t columns = p.gated ? 2 * p.out : p.out, compute_units = std::max(1, traits.compute_units);
  const int64_t workgroups = ceil_div(p.rows, s.block_m) * ceil_div(columns, s.block_n) * choice.splits;
  const int64_t steps =
      ceil_div(ceil_div(p.in, s.block_k), choice.splits) + ceil_div(p.rank(), s.block_k);  // the last part's
  // Rounds of workgroups, one on each compute unit; those that share one hide each other's waits.
  const int64_t rounds = ceil_div(workgroups, compute_units);
  const double beside = std::min<double>(static_cast<double>(rounds), choice.config->occupancy);
  const auto depth = static_cast<double>(steps * s.block_k);
  const double rate = p.dtype() == DType::kF32                            ? of.f32_per_cycle
                      : choice.config->algorithm == GemmAlgorithm::kWgmma ? of.wgmma_per_cycle
                                                                          : of.mma_per_cycle;
  const double multiply = depth * s.block_m * s.block_n / rate;
  const double load = depth * (s.block_m + s.block_n) * element / of.load_bytes_per_cycle;
  const double of_lane = static_cast<double>(s.block_m) * s.block_n / (s.waves() * traits.lanes);
  const double waits = of.workgroup_cycles + of.step_cycles * static_cast<double>(steps) +
                       of.element_cycles * of_lane * (choice.splits > 1 ? of.partial_element_factor : 1.0);
  const double one = std::max(multiply, load) + of.overlap_loss * std::min(multiply, load) + waits / beside;
  double time = static_cast<double>(rounds) * one;
  if (choice.splits > 1)
    time += of.reduce_launch_cycles + of.partial_byte_cycles * 4.0 *
                                          static_cast<double>(p.rows * columns * choice.splits) /
                                          static_cast<double>(compute_units);
  return time;
}

GemmFacts facts_of(const LinearProblem& p) {
  return {.elements = p.dtype() == DType::kF32 ? Elements::kF32 : Elements::k16Bit,
          .columns = p.out,
          .few_rows = p.rows <= kGemvRows,
          .aligned = linear_rows_aligned(p),
          .whole_steps = p.in % 64 == 0,
          .tma_columns = p.out % 32 == 0,
          .tma_output = p.out_dtype() == p.dtype()};
}

TmaExtent tma_extent(const LinearProblem& p) {
  // Whole steps of the product, then the term's.
  const int64_t depth = p.rank() ? ceil_div(p.in, 64) * 64 + p.rank() : p.in;
  return {p.rows, p.gated ? 2 * p.out : p.out, depth, 1, p.gated};
}

}  // namespace

std::vector<const GemmConfig*> gemm_configs(const GpuTraits& traits, DType dtype, bool gated) {
  const KernelTables& family = kernel_tables(traits);
  std::vector<const GemmConfig*> out;
  for (const GemmConfig& config : dtype == DType::kF32 ? family.gemm_f32
                                  : gated              ? family.geglu
                                                       : family.gemm) {
    if (uses_tma(config.algorithm) && !traits.tma) continue;
    if (static_cast<size_t>(config.lds_bytes(static_cast<int>(dtype_size(dtype)))) <= traits.lds_per_group)
      out.push_back(&config);
  }
  return out;
}

std::vector<GemmChoice> linear_candidates(const GpuTraits& traits, const LinearProblem& p) {
  const KernelTables& family = kernel_tables(traits);
  const GemmFacts facts = facts_of(p);
  const auto takes = [&](GemmAlgorithm algorithm) {
    const bool without_terms = algorithm == GemmAlgorithm::kGemv || algorithm == GemmAlgorithm::kWgmma;
    return !(p.rank() && without_terms) && gemm_row(linear_map(), family, facts, algorithm) != nullptr;
  };
  std::vector<GemmChoice> out;
  if (takes(GemmAlgorithm::kGemv)) out.push_back({});
  for (const GemmConfig* config : gemm_configs(traits, p.dtype(), p.gated))
    if (!uses_tma(config->algorithm) && takes(config->algorithm)) out.push_back({config, 1});
  // Where a launch sums the parts, split products are plain ones, and that pairs values and gates.
  const bool sums_parts = family.sums_parts();
  for (const GemmConfig* config : gemm_configs(traits, p.dtype(), sums_parts && p.gated)) {
    if (uses_tma(config->algorithm) || !takes(config->algorithm)) continue;
    const TileShape& shape = config->shape;
    const int64_t steps = ceil_div(p.in, shape.block_k), columns = p.gated ? 2 * p.out : p.out;
    const int64_t tiles = ceil_div(p.rows, shape.block_m) * ceil_div(columns, shape.block_n);
    for (const SharedTileSet set : {SharedTileSet::kAll, SharedTileSet::kLastRound}) {
      const int64_t whole = whole_tiles(traits, tiles, set), shared = tiles - whole;
      // Those of the last round alone, where there are several rounds.
      if (set == SharedTileSet::kLastRound && (!sums_parts || whole == 0 || shared == 0)) continue;
      for (const int splits : worthwhile_splits(shared, steps, traits.compute_units))
        out.push_back({config, splits, 1, set});
    }
  }
  for (const GemmConfig* config : gemm_configs(traits, p.dtype(), p.gated))
    if (uses_tma(config->algorithm) && takes(config->algorithm))
      for (const TmaSplit& s : tma_splits(traits, *config, tma_extent(p), !p.gated))
        out.push_back({config, s.splits, s.multicast_size});
  return out;
}

GemmReason reason_of(const GpuTraits& traits, const LinearProblem& p, const GemmChoice& choice) {
  const GemmAlgorithm algorithm = choice.config ? choice.config->algorithm : GemmAlgorithm::kGemv;
  const GemmMapRow* row = gemm_row(linear_map(), kernel_tables(traits), facts_of(p), algorithm);
  if (!choice.config) return {row, 0};
  if (const auto modelled = modelled_ns(traits, p, choice)) return {row, *modelled};
  return {row, uses_tma(algorithm)
                   ? tma_ns(traits, *choice.config, tma_extent(p), {choice.multicast_size, choice.splits})
                   : estimated_cycles(traits, p, choice)};
}

Explanation linear_explanation(const GpuTraits& traits, const LinearProblem& p) {
  const CostModel& costs = cost_model(kernel_tables(traits).name);
  const ModelledCosts* modelled = costs.modelled_for(traits.arch);
  Explanation out{
      "gpu", costs.family, "cycles of a compute unit; by TMA and by modelled times nanoseconds", {}, {}};
  for (const GemmChoice& choice : linear_candidates(traits, p)) {
    const GemmReason reason = reason_of(traits, p, choice);
    const GemmAlgorithm algorithm = reason.row->algorithm;
    const std::string source = algorithm == GemmAlgorithm::kGemv ? ""
                               : modelled_ns(traits, p, choice)  ? source_text(costs, modelled->source)
                               : is_ping_pong(algorithm) ? source_text(costs, costs.tma_ping_pong->source)
                               : uses_tma(algorithm)     ? source_text(costs, costs.tma->source)
                                                         : source_text(costs, costs.gemm.source);
    out.candidates.push_back({describe(choice), to_text(algorithm), reason.row->reason, source, "",
                              reason.row->rank, reason.cost});
  }
  out.refused = refusals_of(linear_map(), kernel_tables(traits), facts_of(p));
  return out;
}

GemmChoice linear_default_config(const GpuTraits& traits, const LinearProblem& p) {
  GemmChoice best;
  GemmReason least;
  for (const GemmChoice& choice : linear_candidates(traits, p)) {
    const GemmReason reason = reason_of(traits, p, choice);
    const bool better = !least.row || reason.row->rank < least.row->rank ||
                        (reason.row->rank == least.row->rank && reason.cost < least.cost);
    if (!better) continue;
    best = choice;
    least = reason;
  }
  return best;
}

std::string gemm_kernel_name(const GpuTraits& traits, const GemmChoice& choice, DType dtype, bool gated) {
  if (!choice.config) return concat(gated ? "gemv_geglu_" : "gemv_", dtype);
  const bool pairs = choice.splits == 1 || kernel_tables(traits).sums_parts();
  const char* op = gated && pairs ? "geglu_" : "gemm_";
  return kernel_name(*choice.config, op, std::string(dtype_name(dtype)).c_str()).c_str();
}

std::string describe(const GemmChoice& choice) {
  if (!choice.config) return "gemv";
  const std::string multicast =
      uses_tma(choice.config->algorithm) ? concat(choice.multicast_size) : std::string();
  const char* const tiles = choice.split_tiles == SharedTileSet::kLastRound ? "r" : "";
  return concat(describe(*choice.config), multicast,
                choice.splits > 1 ? concat("/", choice.splits, tiles) : "");
}

}  // namespace rocm_sd
