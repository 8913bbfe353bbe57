// Which configuration linear takes for 8-bit operands.
#include <algorithm>

#include "base/error.hpp"
#include "kernels/family/cost_model.hpp"
#include "kernels/family/kernel_tables.hpp"
#include "kernels/gemm/linear_eight_bit.hpp"
#include "kernels/gemm/linear_splits.hpp"
#include "kernels/tma_plan.hpp"

namespace rocm_sd {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool fits(const GpuTraits& traits, const GemmConfig& config) {
  return static_cast<size_t>(config.lds_bytes(1)) <= traits.lds_per_group;
}

GemmFacts facts_of(const LinearProblem& p) {
  return {.elements = Elements::k8Bit, .columns = p.out, .tma_columns = p.out % 32 == 0};
}

double estimated_cycles(const GpuTraits& traits, const LinearProblem& p, const EightBitChoice& choice) {
  const EightBitCosts& of = cost_model(kernel_tables(traits).name).gemm_eight_bit.value();
  const TileShape& s = choice.config.shape;
  const int64_t columns = p.gated ? 2 * p.out : p.out, compute_units = std::max(1, traits.compute_units);
  const int64_t workgroups = ceil_div(p.rows, s.block_m) * ceil_div(columns, s.block_n) * choice.splits;
  const int64_t depth = ceil_div(ceil_div(p.in, s.block_k), choice.splits) * s.block_k;
  const double reuse = 2.0 / (1.0 / s.wave_m() + 1.0 / s.wave_n());
  const double rate = of.mma_per_cycle * reuse / (reuse + 32.0);
  double time = static_cast<double>(ceil_div(workgroups, compute_units)) *
                (static_cast<double>(depth * s.block_m * s.block_n) / rate + of.workgroup_cycles);
  if (choice.splits > 1)
    time += of.reduce_launch_cycles + of.partial_byte_cycles * 4.0 *
                                          static_cast<double>(p.rows * columns * choice.splits) /
                                          static_cast<double>(compute_units);
  return time;
}

// A step of TMA's kernels has the bytes, and takes the time, of one of 16-bit elements with half the depth.
TmaExtent tma_extent(const LinearProblem& p) {
  return {p.rows, p.gated ? 2 * p.out : p.out, p.in / 2, 1, p.gated};
}

void add_tma(const GpuTraits& traits, const LinearProblem& p, const GemmConfig& config,
             std::vector<EightBitChoice>& out) {
  for (const TmaSplit& s : tma_splits(traits, config, tma_extent(p), !p.gated))
    out.push_back({config, s.splits, s.multicast_size});
}

// Split products are plain ones; the reduction pairs values and gates.
void add_tiles(const GpuTraits& traits, const LinearProblem& p, const GemmConfig& config, bool whole,
               std::vector<EightBitChoice>& out) {
  const TileShape& shape = config.shape;
  const int64_t steps = ceil_div(p.in, shape.block_k), columns = p.gated ? 2 * p.out : p.out;
  const int64_t tiles = ceil_div(p.rows, shape.block_m) * ceil_div(columns, shape.block_n);
  if (whole) out.push_back({config});
  for (const int splits : worthwhile_splits(tiles, steps, traits.compute_units))
    out.push_back({config, splits});
}

}  // namespace

std::vector<EightBitChoice> eight_bit_candidates(const GpuTraits& traits, const LinearProblem& p) {
  const KernelTables& family = kernel_tables(traits);
  const auto takes = [&](const GemmConfig& config) {
    return fits(traits, config) && gemm_row(linear_map(), family, facts_of(p), config.algorithm) != nullptr;
  };
  const auto has_geglu = [&](const GemmConfig& config) {
    return std::ranges::any_of(family.eight_bit_geglu,
                               [&](const GemmConfig& other) { return other == config; });
  };
  std::vector<EightBitChoice> out;
  for (const GemmConfig& config : p.gated ? family.eight_bit_geglu : family.eight_bit_gemm)
    if (uses_tma(config.algorithm) && traits.tma && takes(config)) add_tma(traits, p, config, out);
  for (const GemmConfig& config : family.eight_bit_gemm)
    if (!uses_tma(config.algorithm) && takes(config))
      add_tiles(traits, p, config, !p.gated || has_geglu(config), out);
  return out;
}

EightBitReason reason_of(const GpuTraits& traits, const LinearProblem& p, const EightBitChoice& choice) {
  const GemmMapRow* row = gemm_row(linear_map(), kernel_tables(traits), facts_of(p), choice.config.algorithm);
  return {row, choice.tma()
                   ? tma_ns(traits, choice.config, tma_extent(p), {choice.multicast_size, choice.splits})
                   : estimated_cycles(traits, p, choice)};
}

Explanation eight_bit_explanation(const GpuTraits& traits, const LinearProblem& p) {
  const CostModel& costs = cost_model(kernel_tables(traits).name);
  Explanation out{"gpu_eight_bit", costs.family, "cycles of a compute unit; by TMA nanoseconds", {}, {}};
  for (const EightBitChoice& choice : eight_bit_candidates(traits, p)) {
    const EightBitReason reason = reason_of(traits, p, choice);
    out.candidates.push_back(
        {describe(choice), to_text(reason.row->algorithm), reason.row->reason,
         source_text(costs, choice.tma() ? costs.tma->source : costs.gemm_eight_bit->source), "",
         reason.row->rank, reason.cost});
  }
  out.refused = refusals_of(linear_map(), kernel_tables(traits), facts_of(p));
  return out;
}

EightBitChoice eight_bit_default(const GpuTraits& traits, const LinearProblem& p) {
  const std::vector<EightBitChoice> all = eight_bit_candidates(traits, p);
  require<InternalError>(!all.empty(), "linear: no products of 8 bits for ", traits.arch);
  const auto cost = [&](const EightBitChoice& choice) {
    const EightBitReason reason = reason_of(traits, p, choice);
    return std::pair(reason.row->rank, reason.cost);
  };
  return *std::ranges::min_element(all, {}, cost);
}

std::string eight_bit_kernel_name(const EightBitChoice& choice, const LinearProblem& p) {
  const char* op = p.gated && choice.splits == 1 ? "geglu_" : "gemm_";
  return kernel_name(choice.config, op, concat(p.stored_as(), "_", p.dtype()).c_str(),
                     choice.elements_per_step())
      .c_str();
}

std::string describe(const EightBitChoice& choice) {
  return concat(describe(choice.config, choice.elements_per_step()),
                choice.tma() ? concat(choice.multicast_size) : std::string(),
                choice.splits > 1 ? concat("/", choice.splits) : std::string());
}

}  // namespace rocm_sd
