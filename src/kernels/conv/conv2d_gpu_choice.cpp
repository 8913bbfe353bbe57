// Which configuration a convolution takes on a GPU, without timing it.
#include <algorithm>
#include <limits>
#include <tuple>

#include "kernels/conv/conv2d_gpu.hpp"
#include "kernels/tma_plan.hpp"

namespace rocm_sd {
namespace {

#define ROCM_SD_CONV_ROW(m, n, k, waves_m, waves_n, stages, groups) \
  ConvConfig{TileShape{m, n, k, waves_m, waves_n, stages}, groups},
constexpr ConvConfig kNvidia[] = {ROCM_SD_CONV_CONFIGS_NVIDIA(ROCM_SD_CONV_ROW)};
constexpr ConvConfig kFew[] = {ROCM_SD_CONV_CONFIGS_FEW(ROCM_SD_CONV_ROW)};
constexpr ConvConfig kHopper[] = {ROCM_SD_CONV_CONFIGS_HOPPER(ROCM_SD_CONV_ROW)};
constexpr ConvConfig kRdna[] = {ROCM_SD_CONV_CONFIGS_RDNA(ROCM_SD_CONV_ROW)};
constexpr ConvConfig kCdna[] = {ROCM_SD_CONV_CONFIGS_CDNA(ROCM_SD_CONV_ROW)};
constexpr ConvConfig kFloat[] = {ROCM_SD_CONV_CONFIGS_F32(ROCM_SD_CONV_ROW)};
#undef ROCM_SD_CONV_ROW
#define ROCM_SD_TMA_ROW(name, n, stages, groups) ConvConfig{tma_shape(n, stages), groups, true, true},
#define ROCM_SD_PING_PONG_ROW(n, stages) ConvConfig{tma_shape(n, stages), 1, true, true, true},
constexpr ConvConfig kTma[] = {ROCM_SD_CONV_CONFIGS_TMA(ROCM_SD_TMA_ROW)
                                   ROCM_SD_CONV_CONFIGS_PING_PONG(ROCM_SD_PING_PONG_ROW)};
#define ROCM_SD_HALO_ROW(n, stages) ConvConfig{tma_shape(n, stages), 1, true, true, false, true},
#define ROCM_SD_HALO_PING_PONG_ROW(n, stages) ConvConfig{tma_shape(n, stages), 1, true, true, true, true},
constexpr ConvConfig kHalo[] = {ROCM_SD_CONV_CONFIGS_HALO(ROCM_SD_HALO_ROW)
                                    ROCM_SD_CONV_CONFIGS_HALO_PING_PONG(ROCM_SD_HALO_PING_PONG_ROW)};
#undef ROCM_SD_HALO_PING_PONG_ROW
#undef ROCM_SD_HALO_ROW
#undef ROCM_SD_PING_PONG_ROW
#undef ROCM_SD_TMA_ROW

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Rough speeds of a device; only their ratios decide.
struct Rates {
  double products_per_ns;  // multiply-adds of one compute unit
  double bytes_per_ns;     // of the whole device's memory and last cache, for partial sums
  double launch_ns;        // of the reduction's kernel
};

Rates rates_of(const GpuTraits& traits, DType dtype) {
  if (dtype == DType::kF32) return {150, 2000, 2500};
  switch (traits.family) {
    case GpuFamily::kNvidia: return {2600, 3000, 2500};
    case GpuFamily::kCdna3: return {2000, 3000, 4000};
    case GpuFamily::kRdna3: return {500, 1500, 4000};
    case GpuFamily::kRdna4: return {1000, 1500, 4000};
  }
  return {1000, 1500, 4000};
}

// The share of the matrix unit's rate that a tile can reach: a small wave tile reads LDS more often than it
// multiplies, a lone small workgroup does not hide its loads.
double efficiency(const ConvConfig& config, int resident) {
  const TileShape& s = config.shape;
  const double reuse = 2.0 / (1.0 / s.wave_m() + 1.0 / s.wave_n());  // harmonic mean of the wave's sides
  const double waves = s.waves() * std::min(resident, 3);
  return reuse / (reuse + 16.0) * waves / (waves + 2.0);
}

// Warpgroup products as measured on an H200: nanoseconds of a step of 64 where a workgroup is alone on its
// compute unit, and of each where as many as fit share it.
struct WgmmaStep {
  int block_m, block_n;
  double alone_ns, shared_ns;
};
constexpr WgmmaStep kWgmmaSteps[] = {{128, 256, 1049, 1049}, {128, 160, 679, 679},   {128, 128, 1082, 1181},
                                     {256, 128, 1074, 1074}, {256, 160, 1361, 1361}, {128, 64, 465, 729},
                                     {64, 160, 966, 1039},   {64, 128, 449, 582},    {64, 64, 367, 559}};
constexpr double kGroupLaunch = 2370, kGroupFill = 3840,
                 kGroupReduce = 240;                         // ns: of a kernel, a round, a reduction
constexpr double kGroupOutput = 2500, kGroupPartial = 4400;  // bytes per ns

double estimated_wgmma_ns(const GpuTraits& traits, const ConvExtent& e, const ConvChoice& choice) {
  const TileShape& s = choice.config.shape;
  const auto step = std::find_if(std::begin(kWgmmaSteps), std::end(kWgmmaSteps), [&](const WgmmaStep& g) {
    return g.block_m == s.block_m && g.block_n == s.block_n;
  });
  if (step == std::end(kWgmmaSteps)) return std::numeric_limits<double>::max();
  const int64_t steps = ceil_div(e.depth, s.block_k), part = ceil_div(steps, choice.splits);
  const int64_t tiles =
      ceil_div(e.pixels, s.block_m) * ceil_div(e.outputs, s.block_n) * ceil_div(steps, part);
  // Rounds of the busiest compute unit, the last of which may be less full.
  const int64_t most = ceil_div(tiles, std::max(1, traits.compute_units)), fit = choice.config.groups;
  const auto round_ns = [&](int64_t resident) {
    const double share = fit > 1 ? static_cast<double>(resident - 1) / static_cast<double>(fit - 1) : 0.0;
    return kGroupFill +
           static_cast<double>(part) * (step->alone_ns + share * (step->shared_ns - step->alone_ns));
  };
  const auto outputs = static_cast<double>(e.pixels * e.outputs);
  double ns = kGroupLaunch + static_cast<double>(most / fit) * round_ns(fit) + 2 * outputs / kGroupOutput;
  if (most % fit) ns += round_ns(most % fit);
  if (choice.splits > 1) ns += kGroupReduce + 8 * outputs * choice.splits / kGroupPartial;
  return ns;
}

double estimated_ns(const GpuTraits& traits, const ConvExtent& e, const ConvChoice& choice) {
  if (choice.config.warpgroup) return estimated_wgmma_ns(traits, e, choice);
  const TileShape& s = choice.config.shape;
  const Rates rates = rates_of(traits, e.dtype);
  const int64_t steps = ceil_div(e.depth, s.block_k), part = ceil_div(steps, choice.splits);
  const int64_t groups = ceil_div(e.pixels, s.block_m) * ceil_div(e.outputs, s.block_n) * choice.splits;
  const int64_t compute_units = std::max(1, traits.compute_units);
  // The busiest compute unit's workgroups, so many of which run at once. Start, end and the first loads of
  // a workgroup cost about four steps.
  const int64_t most = ceil_div(groups, compute_units);
  const int resident = static_cast<int>(std::min<int64_t>(most, std::max(1, choice.config.groups)));
  const double products =
      static_cast<double>(most) * s.block_m * s.block_n * static_cast<double>((part + 4) * s.block_k);
  double ns = products / (rates.products_per_ns * efficiency(choice.config, resident));
  if (choice.splits > 1) {
    const double partial = 4.0 * static_cast<double>(e.pixels * e.outputs) * choice.splits;
    ns += rates.launch_ns + 2 * partial / rates.bytes_per_ns;
  }
  return ns;
}

}  // namespace

std::vector<ConvConfig> conv_configs_of(const GpuTraits& traits, DType dtype) {
  std::vector<ConvConfig> out;
  const auto add = [&](const auto& table, bool warpgroup) {
    for (ConvConfig config : table) {
      config.warpgroup = warpgroup;
      out.push_back(config);
    }
  };
  if (dtype == DType::kF32) {
    add(kFloat, false);
    return out;
  }
  switch (traits.family) {
    case GpuFamily::kNvidia:
      if (traits.arch == "sm_90") {
        if (traits.tma) {
          add(kHalo, true);
          add(kTma, true);
        }
        add(kHopper, true);
        add(kFew, false);
      } else {
        add(kNvidia, false);
      }
      break;
    case GpuFamily::kCdna3: add(kCdna, false); break;
    case GpuFamily::kRdna3:
    case GpuFamily::kRdna4: add(kRdna, false); break;
  }
  return out;
}

std::vector<ConvChoice> conv_candidates(const GpuTraits& traits, const ConvExtent& extent) {
  std::vector<std::pair<double, ConvChoice>> ranked;
  for (const ConvConfig& config : conv_configs_of(traits, extent.dtype)) {
    if (config.tma) {
      if (config.halo && !extent.halo_pixels) continue;
      const TmaRows from = config.halo           ? TmaRows::kHalo
                           : extent.boxed_pixels ? TmaRows::kBoxes
                                                 : TmaRows::kGathered;
      const int64_t pixels = config.halo           ? extent.halo_pixels
                             : extent.boxed_pixels ? extent.boxed_pixels
                                                   : extent.pixels / extent.phases;
      const TmaExtent tma{pixels, extent.outputs, extent.depth, extent.phases, false, from};
      const TmaTile tile{config.shape.block_n, config.groups, config.ping_pong};
      if (extent.whole_blocks)
        for (const TmaSplit& s : tma_splits(traits, tile, tma, true))
          ranked.emplace_back(tma_ns(traits, tile, tma, s), ConvChoice{config, s.splits, s.multicast_size});
      continue;
    }
    const int64_t tiles =
        ceil_div(extent.pixels, config.shape.block_m) * ceil_div(extent.outputs, config.shape.block_n);
    const int64_t steps = ceil_div(extent.depth, config.shape.block_k);
    for (const int splits : {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32}) {
      // Parts of at least 6 steps; no more workgroups than three rounds of the device.
      if (splits > 1 && (steps < 6 * splits || tiles * splits > 3 * int64_t{traits.compute_units})) break;
      const ConvChoice choice{config, splits};
      ranked.emplace_back(estimated_ns(traits, extent, choice), choice);
    }
  }
  // Few outputs would leave most of a warpgroup's product idle; otherwise it is ahead wherever it exists.
  const bool few = extent.outputs <= 32;
  const auto rank = [&](const std::pair<double, ConvChoice>& r) {
    const ConvConfig& config = r.second.config;
    return std::tuple(!config.tma || few, config.warpgroup == few, config.tma && config.groups > 1, r.first);
  };
  const bool has_groups =
      std::any_of(ranked.begin(), ranked.end(), [](const auto& r) { return r.second.config.warpgroup; });
  std::stable_sort(ranked.begin(), ranked.end(), [&](const auto& a, const auto& b) {
    return has_groups ? rank(a) < rank(b) : a.first < b.first;
  });
  std::vector<ConvChoice> out;
  for (const auto& [ns, choice] : ranked) out.push_back(choice);
  return out;
}

ConvChoice conv_default(const GpuTraits& traits, const ConvExtent& extent) {
  return conv_candidates(traits, extent).front();
}

}  // namespace rocm_sd
