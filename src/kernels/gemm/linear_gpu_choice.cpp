// Which configuration linear takes on a GPU.
#include <algorithm>
#include <array>
#include <span>

#include "kernels/bulk_plan.hpp"
#include "kernels/gemm/linear_configs.hpp"
#include "kernels/gemm/linear_gpu.hpp"
#include "kernels/gemm/linear_params.hpp"

namespace rocm_sd {
namespace {

#define ROCM_SD_GEMM_ROW(m, n, k, waves_m, waves_n, stages, groups) \
  GemmConfig{TileShape{m, n, k, waves_m, waves_n, stages}, groups},
#define ROCM_SD_GROUP_ROW(m, n, k, waves_m, waves_n, stages, groups) \
  GemmConfig{TileShape{m, n, k, waves_m, waves_n, stages}, groups, true},
constexpr std::array kNvidiaGemm = {ROCM_SD_GEMM_CONFIGS_NVIDIA(ROCM_SD_GEMM_ROW)};
constexpr std::array kNvidiaGeglu = {ROCM_SD_GEGLU_CONFIGS_NVIDIA(ROCM_SD_GEMM_ROW)};
constexpr std::array kRdnaGemm = {ROCM_SD_GEMM_CONFIGS_RDNA(ROCM_SD_GEMM_ROW)};
constexpr std::array kRdnaGeglu = {ROCM_SD_GEGLU_CONFIGS_RDNA(ROCM_SD_GEMM_ROW)};
constexpr std::array kCdnaGemm = {ROCM_SD_GEMM_CONFIGS_CDNA(ROCM_SD_GEMM_ROW)};
constexpr std::array kCdnaGeglu = {ROCM_SD_GEGLU_CONFIGS_CDNA(ROCM_SD_GEMM_ROW)};
constexpr std::array kFloat = {ROCM_SD_GEMM_CONFIGS_F32(ROCM_SD_GEMM_ROW)};
constexpr std::array kHopperGemm = {ROCM_SD_GEMM_CONFIGS_HOPPER(ROCM_SD_GROUP_ROW)};
constexpr std::array kHopperGeglu = {ROCM_SD_GEGLU_CONFIGS_HOPPER(ROCM_SD_GROUP_ROW)};
#define ROCM_SD_BULK_ROW(name, n, stages, groups) GemmConfig{bulk_shape(n, stages), groups, true, true},
#define ROCM_SD_TURN_ROW(n, stages) GemmConfig{bulk_shape(n, stages), 1, true, true, true},
constexpr std::array kBulkGemm = {ROCM_SD_GEMM_CONFIGS_BULK(ROCM_SD_BULK_ROW)
                                      ROCM_SD_GEMM_CONFIGS_TURNS(ROCM_SD_TURN_ROW)};
constexpr std::array kBulkGeglu = {ROCM_SD_GEGLU_CONFIGS_BULK(ROCM_SD_BULK_ROW)
                                       ROCM_SD_GEGLU_CONFIGS_TURNS(ROCM_SD_TURN_ROW)};
#undef ROCM_SD_TURN_ROW
#undef ROCM_SD_BULK_ROW
#undef ROCM_SD_GEMM_ROW
#undef ROCM_SD_GROUP_ROW

// Up to this many rows a product is bound by reading the weight once: no tiles.
constexpr int64_t kFewRows = 8;
constexpr int kMostSplits = 8;
// Steps that a part of the depth must have, so that its pipeline fills.
constexpr int kLeastSteps = 4;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The time of a choice in cycles of one multiprocessor, to compare choices by.
struct Machine {
  double products;         // per cycle of a multiprocessor by the matrix units, 16-bit
  double group_products;   // the same by Hopper's warpgroup products
  double loads;            // bytes per cycle from the last cache to a multiprocessor
  double start;            // cycles of a workgroup outside its loop
  double step;             // cycles of a step that neither products nor loads hide
  double element;          // cycles of a lane per element of the output
  double partial_element;  // of that, where the output is partial sums, which have no tail
  double beside;           // of the lesser of products and loads, what the greater does not hide
  double launch;           // cycles of the reduction's start
  double partial;          // cycles per byte of partial sums, of all multiprocessors
};
// NVIDIA: fitted to the times of all configurations for 23 products of SD1.5 and SDXL on an H200; the choices
// then took 4.1% (SD1.5) and 0.9% (SDXL) more in all than the best. The numbers are what fits, not what the
// hardware does. The other families: their ratio of products to loads, as published; the rest guessed.
Machine machine(GpuFamily family) {
  switch (family) {
    case GpuFamily::kNvidia: return {2030, 4960, 139, 1065, 0.025, 48.7, 0.263, 0.5, 979, 0.045};
    case GpuFamily::kRdna3: return {220, 0, 32, 350, 79, 30, 0.6, 0.3, 1000, 0.05};
    case GpuFamily::kRdna4: return {440, 0, 32, 350, 79, 30, 0.6, 0.3, 1000, 0.05};
    case GpuFamily::kCdna3: return {900, 0, 64, 350, 79, 30, 0.6, 0.3, 1000, 0.05};
  }
  return {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
}
constexpr double kFloatProducts = 100;

double estimate(const GpuTraits& traits, const LinearProblem& p, const GemmChoice& choice) {
  const Machine of = machine(traits.family);
  const TileShape& s = choice.config->shape;
  const auto element = static_cast<double>(dtype_size(p.dtype()));
  const int64_t columns = p.gated ? 2 * p.out : p.out, multiprocessors = std::max(1, traits.multiprocessors);
  const int64_t groups = ceil_div(p.rows, s.block_m) * ceil_div(columns, s.block_n) * choice.splits;
  const int64_t steps = ceil_div(ceil_div(p.in, s.block_k), choice.splits);
  // Rounds of workgroups, one on each multiprocessor; those that share one hide each other's waits.
  const int64_t rounds = ceil_div(groups, multiprocessors);
  const double beside = std::min<double>(static_cast<double>(rounds), choice.config->groups);
  const auto depth = static_cast<double>(steps * s.block_k);
  const double rate = p.dtype() == DType::kF32    ? kFloatProducts
                      : choice.config->wave_group ? of.group_products
                                                  : of.products;
  const double multiply = depth * s.block_m * s.block_n / rate;
  const double load = depth * (s.block_m + s.block_n) * element / of.loads;
  const double of_lane = static_cast<double>(s.block_m) * s.block_n / (s.waves() * traits.lanes);
  const double waits = of.start + of.step * static_cast<double>(steps) +
                       of.element * of_lane * (choice.splits > 1 ? of.partial_element : 1.0);
  const double one = std::max(multiply, load) + of.beside * std::min(multiply, load) + waits / beside;
  double time = static_cast<double>(rounds) * one;
  if (choice.splits > 1)
    time += of.launch + of.partial * 4.0 * static_cast<double>(p.rows * columns * choice.splits) /
                            static_cast<double>(multiprocessors);
  return time;
}

}  // namespace

std::vector<const GemmConfig*> gemm_configs(const GpuTraits& traits, DType dtype, bool gated) {
  std::vector<const GemmConfig*> out;
  const auto add = [&](std::span<const GemmConfig> configs) {
    for (const GemmConfig& config : configs)
      if (static_cast<size_t>(config.lds_bytes(static_cast<int>(dtype_size(dtype)))) <= traits.lds_per_group)
        out.push_back(&config);
  };
  if (dtype == DType::kF32) {
    add(kFloat);
    return out;
  }
  if (traits.arch == "sm_90" && traits.copy_engine)
    add(gated ? std::span<const GemmConfig>(kBulkGeglu) : kBulkGemm);
  if (traits.arch == "sm_90") add(gated ? std::span<const GemmConfig>(kHopperGeglu) : kHopperGemm);
  switch (traits.family) {
    case GpuFamily::kNvidia: add(gated ? std::span<const GemmConfig>(kNvidiaGeglu) : kNvidiaGemm); break;
    case GpuFamily::kRdna3:
    case GpuFamily::kRdna4: add(gated ? std::span<const GemmConfig>(kRdnaGeglu) : kRdnaGemm); break;
    case GpuFamily::kCdna3: add(gated ? std::span<const GemmConfig>(kCdnaGeglu) : kCdnaGemm); break;
  }
  return out;
}

namespace {

BulkTile bulk_tile(const GemmConfig& config) { return {config.shape.block_n, config.groups, config.turns}; }
BulkExtent bulk_extent(const LinearProblem& p) {
  return {p.rows, p.gated ? 2 * p.out : p.out, p.in, 1, p.gated};
}

}  // namespace

std::vector<GemmChoice> linear_candidates(const GpuTraits& traits, const LinearProblem& p) {
  std::vector<GemmChoice> out;
  if (p.rows <= kFewRows || !linear_rows_aligned(p)) out.push_back({});
  if (!linear_rows_aligned(p)) return out;
  for (const GemmConfig* config : gemm_configs(traits, p.dtype(), p.gated))
    if (!config->bulk) out.push_back({config, 1});
  // Split products are plain ones; the reduction pairs values and gates.
  for (const GemmConfig* config : gemm_configs(traits, p.dtype(), false)) {
    if (config->bulk) continue;
    const TileShape& shape = config->shape;
    const int64_t steps = ceil_div(p.in, shape.block_k), columns = p.gated ? 2 * p.out : p.out;
    const int64_t tiles = ceil_div(p.rows, shape.block_m) * ceil_div(columns, shape.block_n);
    for (int splits = 2; splits <= kMostSplits; ++splits) {
      if (tiles * (splits - 1) >= 2LL * traits.multiprocessors || steps / splits < kLeastSteps) break;
      if (ceil_div(steps, ceil_div(steps, splits)) == splits) out.push_back({config, splits});
    }
  }
  if (p.out % 32 != 0 || p.out_dtype() != p.dtype()) return out;  // the copy engine's kernels write x's type
  for (const GemmConfig* config : gemm_configs(traits, p.dtype(), p.gated))
    if (config->bulk)
      for (const BulkSplit& s : bulk_splits(traits, bulk_tile(*config), bulk_extent(p), !p.gated))
        out.push_back({config, s.splits, s.sharers});
  return out;
}

GemmChoice linear_default_config(const GpuTraits& traits, const LinearProblem& p) {
  GemmChoice best;
  double least = 0;
  for (const GemmChoice& choice : linear_candidates(traits, p)) {
    if (!choice.config) return choice;
    const bool bulk = choice.config->bulk;  // ahead of the others wherever it exists
    if (bulk && choice.config->groups > 1) continue;
    const double time =
        bulk ? bulk_ns(traits, bulk_tile(*choice.config), bulk_extent(p), {choice.sharers, choice.splits})
             : estimate(traits, p, choice);
    if (!best.config || (bulk && !best.config->bulk) || (bulk == best.config->bulk && time < least)) {
      best = choice;
      least = time;
    }
  }
  return best;
}

std::string gemm_kernel_name(const GemmChoice& choice, DType dtype, bool gated) {
  if (!choice.config) return concat(gated ? "gemv_geglu_" : "gemv_", dtype);
  const TileShape& s = choice.config->shape;
  const char* units = choice.config->bulk         ? (choice.config->turns ? "turn_" : "bulk_")
                      : choice.config->wave_group ? "group_"
                                                  : "";
  return concat(gated && choice.splits == 1 ? "geglu_" : "gemm_", units, dtype, "_", s.block_m, "x",
                s.block_n, "x", s.block_k);
}

std::string describe(const GemmChoice& choice) {
  if (!choice.config) return "gemv";
  const TileShape& s = choice.config->shape;
  const std::string units = choice.config->bulk ? concat(choice.config->turns ? "t" : "b", choice.sharers)
                            : choice.config->wave_group ? "g"
                                                        : "";
  return concat(s.block_m, "x", s.block_n, "x", s.block_k, units,
                choice.splits > 1 ? concat("/", choice.splits) : "");
}

}  // namespace rocm_sd
