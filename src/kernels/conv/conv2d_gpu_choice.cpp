// Which configuration a convolution takes on a GPU, without timing it.
#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "kernels/conv/conv2d_gpu.hpp"
#include "kernels/family/cost_model.hpp"
#include "kernels/family/kernel_tables.hpp"
#include "kernels/tma_plan.hpp"

namespace rocm_sd {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t kResidentPieces = 3;  // of the outputs

// The share of the matrix unit's rate that a tile can reach: a small wave tile reads LDS more often than it
// multiplies, a lone small workgroup does not hide its loads.
double efficiency(const GemmConfig& config, int resident) {
  const TileShape& s = config.shape;
  // Harmonic mean of the wave's sides. Weights that go around LDS are fetched once and need no gather.
  const double of_weights = s.direct == DirectOperand::kWeights ? 0.0 : 1.0;
  const double reuse = 2.0 / (of_weights / s.wave_m() + 1.0 / s.wave_n());
  const double waves = s.waves() * std::min(resident, 3);
  return reuse / (reuse + 16.0) * waves / (waves + 2.0);
}

double estimated_wgmma_ns(const GpuTraits& traits, const ConvExtent& e, const ConvChoice& choice) {
  const ConvWgmmaCosts& of = cost_model(kernel_tables(traits).name).conv_wgmma.value();
  const TileShape& s = choice.config.shape;
  const auto step = std::ranges::find_if(
      of.steps, [&](const ConvWgmmaCosts::Step& g) { return g.rows == s.block_m && g.columns == s.block_n; });
  if (step == of.steps.end()) return std::numeric_limits<double>::max();
  const int64_t steps = ceil_div(e.depth, s.block_k), part = ceil_div(steps, choice.splits);
  const int64_t tiles =
      ceil_div(e.pixels, s.block_m) * ceil_div(e.outputs, s.block_n) * ceil_div(steps, part);
  // Rounds of the busiest compute unit, the last of which may be less full.
  const int64_t most = ceil_div(tiles, std::max(1, traits.compute_units)), fit = choice.config.occupancy;
  const auto round_ns = [&](int64_t resident) {
    const double share = fit > 1 ? static_cast<double>(resident - 1) / static_cast<double>(fit - 1) : 0.0;
    return of.round_ns +
           static_cast<double>(part) * (step->alone_ns + share * (step->shared_ns - step->alone_ns));
  };
  const auto outputs = static_cast<double>(e.pixels * e.outputs);
  double ns =
      of.launch_ns + static_cast<double>(most / fit) * round_ns(fit) + 2 * outputs / of.output_bytes_per_ns;
  if (most % fit) ns += round_ns(most % fit);
  if (choice.splits > 1) ns += of.reduce_ns + 8 * outputs * choice.splits / of.partial_bytes_per_ns;
  return ns;
}

// Of a launch, and of those the ones that have a workgroup each: phases are divided alike.
int64_t tiles_of(const ConvExtent& e, const TileShape& s) {
  return e.phases * ceil_div(e.pixels / e.phases, s.block_m) * ceil_div(e.outputs, s.block_n);
}
int64_t shared_from(const GpuTraits& traits, const ConvExtent& e, const TileShape& s, SharedTileSet set) {
  return e.phases * whole_tiles(traits, tiles_of(e, s) / e.phases, set);
}

// By modelled times of its kernel; nothing where there are none.
std::optional<double> modelled_ns(const GpuTraits& traits, const ConvExtent& e, const ConvChoice& choice) {
  const ModelledCosts* of = cost_model(kernel_tables(traits).name).modelled_for(traits.arch);
  const KernelTime* kernel = of ? find_kernel_time(*of, conv_kernel_name(e.dtype, choice.config)) : nullptr;
  if (!kernel) return std::nullopt;
  const TileShape& s = choice.config.shape;
  const int64_t all = ceil_div(e.depth, s.block_k), steps = ceil_div(all, choice.splits);
  const int64_t tiles = tiles_of(e, s), groups = tiles * choice.splits;
  if (kernel_tables(traits).sums_parts())
    return shared_launch_ns(
        *of, *kernel, traits.compute_units,
        {tiles, shared_from(traits, e, s, choice.split_tiles), choice.splits, static_cast<double>(all),
         static_cast<double>(steps), static_cast<double>(tile_floats(s))});
  double ns = launch_ns(*kernel, groups, traits.compute_units, static_cast<double>(steps));
  if (choice.splits > 1) ns += reduce_ns(*of, static_cast<double>(e.pixels * e.outputs), choice.splits);
  return ns;
}

double estimated_tiles_ns(const GpuTraits& traits, const ConvExtent& e, const ConvChoice& choice) {
  const TileShape& s = choice.config.shape;
  const ConvCosts& costs = cost_model(kernel_tables(traits).name).conv;
  const ConvRates& rates = e.dtype == DType::kF32 ? costs.f32 : costs.f16;
  const int64_t steps = ceil_div(e.depth, s.block_k), part = ceil_div(steps, choice.splits);
  const int64_t workgroups = ceil_div(e.pixels, s.block_m) * ceil_div(e.outputs, s.block_n) * choice.splits;
  const int64_t compute_units = std::max(1, traits.compute_units);
  // The busiest compute unit's workgroups, so many of which run at once. Start, end and the first loads of
  // a workgroup cost about four steps.
  const int64_t most = ceil_div(workgroups, compute_units);
  const int resident = static_cast<int>(std::min<int64_t>(most, std::max(1, choice.config.occupancy)));
  const double multiply_adds =
      static_cast<double>(most) * s.block_m * s.block_n * static_cast<double>((part + 4) * s.block_k);
  double ns = multiply_adds / (rates.mma_per_ns * efficiency(choice.config, resident));
  if (choice.splits > 1) {
    const double partial = 4.0 * static_cast<double>(e.pixels * e.outputs) * choice.splits;
    ns += rates.reduce_ns + 2 * partial / rates.bytes_per_ns;
  }
  return ns;
}

double estimated_ns(const GpuTraits& traits, const ConvExtent& e, const ConvChoice& choice) {
  if (const auto modelled = modelled_ns(traits, e, choice)) return *modelled;
  if (choice.config.algorithm == GemmAlgorithm::kTmaResident)
    return resident_ns(traits, choice.config, tma_extent(e, choice.config));
  if (uses_tma(choice.config.algorithm))
    return tma_ns(traits, choice.config, tma_extent(e, choice.config),
                  {choice.multicast_size, choice.splits});
  return choice.config.algorithm == GemmAlgorithm::kWgmma ? estimated_wgmma_ns(traits, e, choice)
                                                          : estimated_tiles_ns(traits, e, choice);
}

GemmFacts facts_of(const ConvExtent& e) {
  return {.elements = e.dtype == DType::kF32 ? Elements::kF32 : Elements::k16Bit,
          .columns = e.outputs,
          .whole_steps = e.whole_steps,
          .whole_blocks = e.whole_blocks,
          .halos = e.halo_pixels != 0,
          .resident = e.resident_channels != 0};
}

// The clusters or the parts of the depth that are worth timing for a configuration.
std::vector<ConvChoice> choices_of(const GpuTraits& traits, const ConvExtent& e, const GemmConfig& config) {
  std::vector<ConvChoice> out;
  if (config.algorithm == GemmAlgorithm::kTmaResident) {
    const TileShape& s = config.shape;
    const int64_t pieces = ceil_div(e.outputs, s.block_n);
    // Each piece reads all pixels; with more of them wider tiles are faster.
    if (e.resident_channels <= s.block_k && (e.outputs % s.block_n == 0 || pieces == 1) &&
        pieces <= kResidentPieces && e.phases * pieces <= traits.compute_units)
      out.push_back({config});
    return out;
  }
  if (uses_tma(config.algorithm)) {
    for (const TmaSplit& s : tma_splits(traits, config, tma_extent(e, config), true))
      out.push_back({config, s.splits, s.multicast_size});
    return out;
  }
  const int64_t tiles = ceil_div(e.pixels, config.shape.block_m) * ceil_div(e.outputs, config.shape.block_n);
  const int64_t steps = ceil_div(e.depth, config.shape.block_k);
  for (const int splits : {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32}) {
    // Parts of at least 6 steps; no more workgroups than three rounds of the device.
    if (splits > 1 && (steps < 6 * splits || tiles * splits > 3 * int64_t{traits.compute_units})) break;
    out.push_back({config, splits});
  }
  // The tiles of the last round alone.
  const int64_t units = std::max(1, traits.compute_units), phase = tiles_of(e, config.shape) / e.phases;
  if (!kernel_tables(traits).sums_parts() || phase < units || phase % units == 0) return out;
  for (const int splits : {2, 3, 4, 5, 6, 8, 10, 12, 16}) {
    if (steps < 6 * splits || phase % units * splits > 3 * units) break;
    out.push_back({config, splits, 1, SharedTileSet::kLastRound});
  }
  return out;
}

}  // namespace

TmaExtent tma_extent(const ConvExtent& e, const GemmConfig& config) {
  const bool halo = uses_halo(config.algorithm);
  const TmaRows from = halo ? TmaRows::kHalo : e.boxed_pixels ? TmaRows::kBoxes : TmaRows::kGathered;
  const int64_t pixels = halo ? e.halo_pixels : e.boxed_pixels ? e.boxed_pixels : e.pixels / e.phases;
  return {pixels, e.outputs, e.depth, e.phases, false, from};
}

std::vector<GemmConfig> conv_configs_of(const GpuTraits& traits, DType dtype) {
  const KernelTables& family = kernel_tables(traits);
  std::vector<GemmConfig> out;
  for (const GemmConfig& config : dtype == DType::kF32 ? family.conv_f32 : family.conv)
    if (!uses_tma(config.algorithm) || traits.tma) out.push_back(config);
  return out;
}

ConvReason reason_of(const GpuTraits& traits, const ConvExtent& extent, const ConvChoice& choice) {
  return {gemm_row(conv_map(), kernel_tables(traits), facts_of(extent), choice.config.algorithm),
          estimated_ns(traits, extent, choice)};
}

Explanation conv_explanation(const GpuTraits& traits, const ConvExtent& extent) {
  const CostModel& costs = cost_model(kernel_tables(traits).name);
  const ModelledCosts* modelled = costs.modelled_for(traits.arch);
  Explanation out{"gpu", costs.family, "nanoseconds", {}, {}};
  for (const ConvChoice& choice : conv_candidates(traits, extent)) {
    const ConvReason reason = reason_of(traits, extent, choice);
    const GemmAlgorithm algorithm = reason.row->algorithm;
    const std::string& source = modelled_ns(traits, extent, choice)        ? modelled->source
                                : algorithm == GemmAlgorithm::kTmaResident ? costs.tma_resident->source
                                : is_ping_pong(algorithm)                  ? costs.tma_ping_pong->source
                                : uses_tma(algorithm)                      ? costs.tma->source
                                : algorithm == GemmAlgorithm::kWgmma       ? costs.conv_wgmma->source
                                                                           : costs.conv.source;
    out.candidates.push_back({describe(choice), to_text(algorithm), reason.row->reason,
                              source_text(costs, source), "", reason.row->rank, reason.ns});
  }
  out.refused = refusals_of(conv_map(), kernel_tables(traits), facts_of(extent));
  return out;
}

std::vector<ConvChoice> conv_candidates(const GpuTraits& traits, const ConvExtent& extent) {
  const KernelTables& family = kernel_tables(traits);
  const GemmFacts facts = facts_of(extent);
  std::vector<std::tuple<int, double, ConvChoice>> ranked;
  for (const GemmConfig& config : conv_configs_of(traits, extent.dtype)) {
    const GemmMapRow* row = gemm_row(conv_map(), family, facts, config.algorithm);
    if (!row) continue;
    for (const ConvChoice& choice : choices_of(traits, extent, config))
      ranked.emplace_back(row->rank, estimated_ns(traits, extent, choice), choice);
  }
  std::ranges::stable_sort(ranked, {},
                           [](const auto& r) { return std::tuple(std::get<0>(r), std::get<1>(r)); });
  std::vector<ConvChoice> out;
  for (const auto& [rank, ns, choice] : ranked) out.push_back(choice);
  return out;
}

ConvChoice conv_default(const GpuTraits& traits, const ConvExtent& extent) {
  return conv_candidates(traits, extent).front();
}

}  // namespace rocm_sd
