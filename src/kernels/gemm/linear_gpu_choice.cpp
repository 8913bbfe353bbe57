// Which configuration linear takes on a GPU.
#include <algorithm>
#include <array>
#include <span>

#include "kernels/gemm/linear_configs.hpp"
#include "kernels/gemm/linear_gpu.hpp"
#include "kernels/gemm/linear_params.hpp"
#include "kernels/tma_plan.hpp"

namespace rocm_sd {
namespace {

#define ROCM_SD_GEMM_ROW(m, n, k, waves_m, waves_n, stages, groups) \
  GemmConfig{TileShape{m, n, k, waves_m, waves_n, stages}, groups},
#define ROCM_SD_WGMMA_ROW(m, n, k, waves_m, waves_n, stages, groups) \
  GemmConfig{TileShape{m, n, k, waves_m, waves_n, stages}, groups, true},
constexpr std::array kNvidiaGemm = {ROCM_SD_GEMM_CONFIGS_NVIDIA(ROCM_SD_GEMM_ROW)};
constexpr std::array kNvidiaGeglu = {ROCM_SD_GEGLU_CONFIGS_NVIDIA(ROCM_SD_GEMM_ROW)};
constexpr std::array kRdnaGemm = {ROCM_SD_GEMM_CONFIGS_RDNA(ROCM_SD_GEMM_ROW)};
constexpr std::array kRdnaGeglu = {ROCM_SD_GEGLU_CONFIGS_RDNA(ROCM_SD_GEMM_ROW)};
constexpr std::array kCdnaGemm = {ROCM_SD_GEMM_CONFIGS_CDNA(ROCM_SD_GEMM_ROW)};
constexpr std::array kCdnaGeglu = {ROCM_SD_GEGLU_CONFIGS_CDNA(ROCM_SD_GEMM_ROW)};
constexpr std::array kFloat = {ROCM_SD_GEMM_CONFIGS_F32(ROCM_SD_GEMM_ROW)};
constexpr std::array kHopperGemm = {ROCM_SD_GEMM_CONFIGS_HOPPER(ROCM_SD_WGMMA_ROW)};
constexpr std::array kHopperGeglu = {ROCM_SD_GEGLU_CONFIGS_HOPPER(ROCM_SD_WGMMA_ROW)};
#define ROCM_SD_TMA_ROW(name, n, stages, groups) GemmConfig{tma_shape(n, stages), groups, true, true},
#define ROCM_SD_PING_PONG_ROW(n, stages) GemmConfig{tma_shape(n, stages), 1, true, true, true},
constexpr std::array kTmaGemm = {ROCM_SD_GEMM_CONFIGS_TMA(ROCM_SD_TMA_ROW)
                                     ROCM_SD_GEMM_CONFIGS_PING_PONG(ROCM_SD_PING_PONG_ROW)};
constexpr std::array kTmaGeglu = {ROCM_SD_GEGLU_CONFIGS_TMA(ROCM_SD_TMA_ROW)
                                      ROCM_SD_GEGLU_CONFIGS_PING_PONG(ROCM_SD_PING_PONG_ROW)};
#undef ROCM_SD_PING_PONG_ROW
#undef ROCM_SD_TMA_ROW
#undef ROCM_SD_GEMM_ROW
#undef ROCM_SD_WGMMA_ROW

// Up to this many rows a product is bound by reading the weight once: no tiles.
constexpr int64_t kFewRows = 8;
constexpr int kMaxSplits = 8;
// Steps that a part of the depth must have, so that its pipeline fills.
constexpr int kLeastSteps = 4;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The time of a choice in cycles of one compute unit, to compare choices by.
struct Machine {
  double products;         // per cycle of a compute unit by the matrix units, 16-bit
  double wgmma_products;   // the same by Hopper's warpgroup products
  double loads;            // bytes per cycle from the last cache to a compute unit
  double start;            // cycles of a workgroup outside its loop
  double step;             // cycles of a step that neither products nor loads hide
  double element;          // cycles of a lane per element of the output
  double partial_element;  // of that, where the output is partial sums, which have no epilogue
  double beside;           // of the lesser of products and loads, what the greater does not hide
  double launch;           // cycles of the reduction's start
  double partial;          // cycles per byte of partial sums, of all compute units
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
  const int64_t columns = p.gated ? 2 * p.out : p.out, compute_units = std::max(1, traits.compute_units);
  const int64_t groups = ceil_div(p.rows, s.block_m) * ceil_div(columns, s.block_n) * choice.splits;
  const int64_t steps = ceil_div(ceil_div(p.in, s.block_k), choice.splits);
  // Rounds of workgroups, one on each compute unit; those that share one hide each other's waits.
  const int64_t rounds = ceil_div(groups, compute_units);
  const double beside = std::min<double>(static_cast<double>(rounds), choice.config->groups);
  const auto depth = static_cast<double>(steps * s.block_k);
  const double rate = p.dtype() == DType::kF32   ? kFloatProducts
                      : choice.config->warpgroup ? of.wgmma_products
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
                            static_cast<double>(compute_units);
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
  if (traits.arch == "sm_90" && traits.tma) add(gated ? std::span<const GemmConfig>(kTmaGeglu) : kTmaGemm);
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

TmaTile tma_tile(const GemmConfig& config) { return {config.shape.block_n, config.groups, config.ping_pong}; }
TmaExtent tma_extent(const LinearProblem& p) {
  return {p.rows, p.gated ? 2 * p.out : p.out, p.in, 1, p.gated};
}

}  // namespace

std::vector<GemmChoice> linear_candidates(const GpuTraits& traits, const LinearProblem& p) {
  std::vector<GemmChoice> out;
  if (p.rows <= kFewRows || !linear_rows_aligned(p)) out.push_back({});
  if (!linear_rows_aligned(p)) return out;
  for (const GemmConfig* config : gemm_configs(traits, p.dtype(), p.gated))
    if (!config->tma) out.push_back({config, 1});
  // Split products are plain ones; the reduction pairs values and gates.
  for (const GemmConfig* config : gemm_configs(traits, p.dtype(), false)) {
    if (config->tma) continue;
    const TileShape& shape = config->shape;
    const int64_t steps = ceil_div(p.in, shape.block_k), columns = p.gated ? 2 * p.out : p.out;
    const int64_t tiles = ceil_div(p.rows, shape.block_m) * ceil_div(columns, shape.block_n);
    for (int splits = 2; splits <= kMaxSplits; ++splits) {
      if (tiles * (splits - 1) >= 2LL * traits.compute_units || steps / splits < kLeastSteps) break;
      if (ceil_div(steps, ceil_div(steps, splits)) == splits) out.push_back({config, splits});
    }
  }
  if (p.out % 32 != 0 || p.out_dtype() != p.dtype()) return out;  // TMA's kernels write x's type
  for (const GemmConfig* config : gemm_configs(traits, p.dtype(), p.gated))
    if (config->tma)
      for (const TmaSplit& s : tma_splits(traits, tma_tile(*config), tma_extent(p), !p.gated))
        out.push_back({config, s.splits, s.multicast_size});
  return out;
}

GemmChoice linear_default_config(const GpuTraits& traits, const LinearProblem& p) {
  GemmChoice best;
  double least = 0;
  for (const GemmChoice& choice : linear_candidates(traits, p)) {
    if (!choice.config) return choice;
    const bool tma = choice.config->tma;  // ahead of the others wherever it exists
    if (tma && choice.config->groups > 1) continue;
    const double time =
        tma ? tma_ns(traits, tma_tile(*choice.config), tma_extent(p), {choice.multicast_size, choice.splits})
            : estimate(traits, p, choice);
    if (!best.config || (tma && !best.config->tma) || (tma == best.config->tma && time < least)) {
      best = choice;
      least = time;
    }
  }
  return best;
}

std::string gemm_kernel_name(const GemmChoice& choice, DType dtype, bool gated) {
  if (!choice.config) return concat(gated ? "gemv_geglu_" : "gemv_", dtype);
  const TileShape& s = choice.config->shape;
  const char* units = choice.config->tma         ? (choice.config->ping_pong ? "ping_pong_" : "tma_")
                      : choice.config->warpgroup ? "wgmma_"
                                                 : "";
  return concat(gated && choice.splits == 1 ? "geglu_" : "gemm_", units, dtype, "_", s.block_m, "x",
                s.block_n, "x", s.block_k);
}

std::string describe(const GemmChoice& choice) {
  if (!choice.config) return "gemv";
  const TileShape& s = choice.config->shape;
  const std::string units = choice.config->tma
                                ? concat(choice.config->ping_pong ? "t" : "b", choice.multicast_size)
                            : choice.config->warpgroup ? "g"
                                                       : "";
  return concat(s.block_m, "x", s.block_n, "x", s.block_k, units,
                choice.splits > 1 ? concat("/", choice.splits) : "");
}

}  // namespace rocm_sd
