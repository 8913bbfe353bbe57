// Which configuration linear takes for 8-bit operands.
#include <algorithm>
#include <span>

#include "base/error.hpp"
#include "kernels/gemm/linear_eight_bit.hpp"
#include "kernels/gemm/linear_eight_bit_configs.hpp"
#include "kernels/tma_plan.hpp"

namespace rocm_sd {
namespace {

#define ROCM_SD_EIGHT_BIT_ROW(m, n, k, waves_m, waves_n, stages, groups) \
  EightBitChoice{TileShape{m, n, k, waves_m, waves_n, stages}, groups},
#define ROCM_SD_TMA_ROW(name, n, stages, groups) EightBitChoice{tma_shape(n, stages), groups, true},
constexpr EightBitChoice kNvidia[] = {ROCM_SD_EIGHT_BIT_GEMM_NVIDIA(ROCM_SD_EIGHT_BIT_ROW)};
constexpr EightBitChoice kRdna4[] = {ROCM_SD_EIGHT_BIT_GEMM_RDNA4(ROCM_SD_EIGHT_BIT_ROW)};
constexpr EightBitChoice kCdna3[] = {ROCM_SD_EIGHT_BIT_GEMM_CDNA3(ROCM_SD_EIGHT_BIT_ROW)};
constexpr EightBitChoice kTma[] = {ROCM_SD_EIGHT_BIT_GEMM_TMA(ROCM_SD_TMA_ROW)};
constexpr EightBitChoice kTmaGated[] = {ROCM_SD_EIGHT_BIT_GEGLU_TMA(ROCM_SD_TMA_ROW)};
#undef ROCM_SD_EIGHT_BIT_ROW
#undef ROCM_SD_TMA_ROW

constexpr int kMaxSplits = 8, kLeastSteps = 4;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::span<const EightBitChoice> configs(GpuFamily family) {
  switch (family) {
    case GpuFamily::kNvidia: return kNvidia;
    case GpuFamily::kRdna4: return kRdna4;
    case GpuFamily::kCdna3: return kCdna3;
    case GpuFamily::kRdna3: return {};
  }
  return {};
}

bool fits(const GpuTraits& traits, const EightBitChoice& choice) {
  return static_cast<size_t>(choice.lds_bytes()) <= traits.lds_per_group;
}

// Guessed, as for 16-bit products on families that were not measured: products of a compute unit in a
// cycle, cycles of a workgroup outside its loop, of the reduction's start and per byte of partial sums.
constexpr double kProducts = 2000, kStart = 1500, kLaunch = 2000, kPartial = 0.05;

double estimate(const GpuTraits& traits, const LinearProblem& p, const EightBitChoice& choice) {
  const TileShape& s = choice.shape;
  const int64_t columns = p.gated ? 2 * p.out : p.out, compute_units = std::max(1, traits.compute_units);
  const int64_t groups = ceil_div(p.rows, s.block_m) * ceil_div(columns, s.block_n) * choice.splits;
  const int64_t depth = ceil_div(ceil_div(p.in, s.block_k), choice.splits) * s.block_k;
  const double reuse = 2.0 / (1.0 / s.wave_m() + 1.0 / s.wave_n());
  const double rate = kProducts * reuse / (reuse + 32.0);
  double time = static_cast<double>(ceil_div(groups, compute_units)) *
                (static_cast<double>(depth * s.block_m * s.block_n) / rate + kStart);
  if (choice.splits > 1)
    time += kLaunch + kPartial * 4.0 * static_cast<double>(p.rows * columns * choice.splits) /
                          static_cast<double>(compute_units);
  return time;
}

// A step of TMA's products has the bytes, and takes the time, of one of 16-bit elements with half
// the depth.
TmaTile tma_tile(const EightBitChoice& choice) { return {choice.shape.block_n, choice.groups}; }
TmaExtent tma_extent(const LinearProblem& p) {
  return {p.rows, p.gated ? 2 * p.out : p.out, p.in / 2, 1, p.gated};
}

void add_tma(const GpuTraits& traits, const LinearProblem& p, std::vector<EightBitChoice>& out) {
  if (traits.arch != "sm_90" || !traits.tma || p.out % 32 != 0) return;
  const std::span<const EightBitChoice> all = p.gated ? std::span<const EightBitChoice>(kTmaGated) : kTma;
  for (const EightBitChoice& config : all) {
    if (!fits(traits, config)) continue;
    for (const TmaSplit& s : tma_splits(traits, tma_tile(config), tma_extent(p), !p.gated))
      out.push_back({config.shape, config.groups, true, s.splits, s.multicast_size});
  }
}

void add_tiles(const GpuTraits& traits, const LinearProblem& p, std::vector<EightBitChoice>& out) {
  const std::span<const EightBitChoice> all = configs(traits.family);
  for (const EightBitChoice& config : all) {
    const TileShape& shape = config.shape;
    if (!fits(traits, config)) continue;
    const int64_t steps = ceil_div(p.in, shape.block_k), columns = p.gated ? 2 * p.out : p.out;
    const int64_t tiles = ceil_div(p.rows, shape.block_m) * ceil_div(columns, shape.block_n);
    if (!p.gated || &config == all.data()) out.push_back(config);  // one configuration has a gated form
    for (int splits = 2; splits <= kMaxSplits; ++splits) {
      if (tiles * (splits - 1) >= 2LL * traits.compute_units || steps / splits < kLeastSteps) break;
      if (ceil_div(steps, ceil_div(steps, splits)) == splits)
        out.push_back({shape, config.groups, false, splits});
    }
  }
}

}  // namespace

std::vector<EightBitChoice> eight_bit_candidates(const GpuTraits& traits, const LinearProblem& p) {
  std::vector<EightBitChoice> out;
  add_tma(traits, p, out);
  add_tiles(traits, p, out);
  return out;
}

EightBitChoice eight_bit_default(const GpuTraits& traits, const LinearProblem& p) {
  std::vector<EightBitChoice> all;
  add_tma(traits, p, all);
  const bool tma = !all.empty();  // ahead of the others wherever it exists
  if (!tma) add_tiles(traits, p, all);
  require<InternalError>(!all.empty(), "linear: no products of 8 bits for ", traits.arch);
  const auto time = [&](const EightBitChoice& c) {
    return tma ? tma_ns(traits, tma_tile(c), tma_extent(p), {c.multicast_size, c.splits})
               : estimate(traits, p, c);
  };
  return *std::min_element(all.begin(), all.end(), [&](const EightBitChoice& a, const EightBitChoice& b) {
    return time(a) < time(b);
  });
}

std::string eight_bit_kernel_name(const EightBitChoice& choice, const LinearProblem& p) {
  const TileShape& s = choice.shape;
  return concat(p.gated && (choice.splits == 1) ? "geglu_" : "gemm_", choice.tma ? "tma_" : "", p.held_as(),
                "_", p.dtype(), "_", s.block_m, "x", s.block_n, "x", choice.depth());
}

std::string describe(const EightBitChoice& choice) {
  const TileShape& s = choice.shape;
  return concat(s.block_m, "x", s.block_n, "x", choice.depth(),
                choice.tma ? concat("b", choice.multicast_size) : std::string(),
                choice.splits > 1 ? concat("/", choice.splits) : std::string());
}

}  // namespace rocm_sd
