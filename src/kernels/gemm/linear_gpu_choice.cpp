// Which configuration linear takes on a GPU.
#include <algorithm>
#include <array>
#include <span>

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
#undef ROCM_SD_GEMM_ROW
#undef ROCM_SD_GROUP_ROW

// Up to this many rows a product is bound by reading the weight once: no tiles.
constexpr int64_t kFewRows = 8;
constexpr int kMostSplits = 8;
// Steps that a part of the depth must have, so that its pipeline fills.
constexpr int kLeastSteps = 4;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The time of a choice in cycles of one multiprocessor, to compare choices by: what its matrix units take,
// what of the loads and of the start and end of a tile they do not hide, and the rounds of tiles that the
// device needs.
struct Machine {
  double products;  // per cycle of a multiprocessor: 16-bit, by the matrix units; as measured, not the peak
  double loads;     // bytes per cycle from the last cache to a multiprocessor
  double start;     // cycles from a workgroup's start to its first product, and from its last to its end
  double launch;    // cycles of one more kernel in the stream
};
// Hopper's own products against those that it shares with older generations.
constexpr double kGroupGain = 1.5;

Machine machine(GpuFamily family) {
  switch (family) {
    case GpuFamily::kNvidia: return {1200, 64, 1500, 4000};
    case GpuFamily::kRdna3: return {220, 32, 1500, 8000};
    case GpuFamily::kRdna4: return {440, 32, 1500, 8000};
    case GpuFamily::kCdna3: return {900, 64, 1500, 8000};
  }
  return {1, 1, 1, 1};
}

double estimate(const GpuTraits& traits, const LinearProblem& p, const GemmChoice& choice) {
  Machine of = machine(traits.family);
  if (p.dtype() == DType::kF32) of.products = 100;
  if (choice.config->wave_group) of.products *= kGroupGain;
  const TileShape& s = choice.config->shape;
  const auto element = static_cast<double>(dtype_size(p.dtype()));
  const int64_t columns = p.gated ? 2 * p.out : p.out;
  const int64_t groups = ceil_div(p.rows, s.block_m) * ceil_div(columns, s.block_n) * choice.splits;
  const int64_t steps = ceil_div(ceil_div(p.in, s.block_k), choice.splits);
  // Workgroups that share a multiprocessor hide each other's waits.
  const int64_t rounds = ceil_div(groups, traits.multiprocessors);
  const double beside = std::min<double>(static_cast<double>(rounds), choice.config->groups);
  const double depth = static_cast<double>(steps * s.block_k);
  const double multiply = depth * s.block_m * s.block_n / of.products;
  const double load = depth * (s.block_m + s.block_n) * element / of.loads;
  const double store =
      static_cast<double>(s.block_m) * s.block_n * (choice.splits > 1 ? 4 : element) / of.loads;
  const double one = std::max(multiply, load) + 0.2 * std::min(multiply, load);
  double time = static_cast<double>(rounds) * (one + store + of.start / beside);
  if (choice.splits > 1) {
    const double partial = 4.0 * static_cast<double>(p.rows * columns) * choice.splits;
    time += of.launch + partial / (of.loads * traits.multiprocessors);
  }
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
  if (traits.arch == "sm_90") add(gated ? std::span<const GemmConfig>(kHopperGeglu) : kHopperGemm);
  switch (traits.family) {
    case GpuFamily::kNvidia: add(gated ? std::span<const GemmConfig>(kNvidiaGeglu) : kNvidiaGemm); break;
    case GpuFamily::kRdna3:
    case GpuFamily::kRdna4: add(gated ? std::span<const GemmConfig>(kRdnaGeglu) : kRdnaGemm); break;
    case GpuFamily::kCdna3: add(gated ? std::span<const GemmConfig>(kCdnaGeglu) : kCdnaGemm); break;
  }
  return out;
}

std::vector<GemmChoice> linear_candidates(const GpuTraits& traits, const LinearProblem& p) {
  std::vector<GemmChoice> out;
  if (p.rows <= kFewRows || !linear_rows_aligned(p)) out.push_back({});
  if (!linear_rows_aligned(p)) return out;
  for (const GemmConfig* config : gemm_configs(traits, p.dtype(), p.gated)) out.push_back({config, 1});
  // Split products are plain ones; the reduction pairs values and gates.
  for (const GemmConfig* config : gemm_configs(traits, p.dtype(), false)) {
    const TileShape& shape = config->shape;
    const int64_t steps = ceil_div(p.in, shape.block_k), columns = p.gated ? 2 * p.out : p.out;
    const int64_t tiles = ceil_div(p.rows, shape.block_m) * ceil_div(columns, shape.block_n);
    for (int splits = 2; splits <= kMostSplits; ++splits) {
      if (tiles * (splits - 1) >= 2LL * traits.multiprocessors || steps / splits < kLeastSteps) break;
      if (ceil_div(steps, ceil_div(steps, splits)) == splits) out.push_back({config, splits});
    }
  }
  return out;
}

GemmChoice linear_default_config(const GpuTraits& traits, const LinearProblem& p) {
  GemmChoice best;
  double least = 0;
  for (const GemmChoice& choice : linear_candidates(traits, p)) {
    if (!choice.config) return choice;
    const double time = estimate(traits, p, choice);
    if (!best.config || time < least) {
      best = choice;
      least = time;
    }
  }
  return best;
}

std::string gemm_kernel_name(const GemmChoice& choice, DType dtype, bool gated) {
  if (!choice.config) return concat(gated ? "gemv_geglu_" : "gemv_", dtype);
  const TileShape& s = choice.config->shape;
  return concat(gated && choice.splits == 1 ? "geglu_" : "gemm_", choice.config->wave_group ? "group_" : "",
                dtype, "_", s.block_m, "x", s.block_n, "x", s.block_k);
}

std::string describe(const GemmChoice& choice) {
  if (!choice.config) return "gemv";
  const TileShape& s = choice.config->shape;
  return concat(s.block_m, "x", s.block_n, "x", s.block_k,
                choice.splits > 1 ? concat("/", choice.splits) : "");
}

}  // namespace rocm_sd
