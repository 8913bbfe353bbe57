#include "kernels/attention/flash_plan.hpp"

#include <algorithm>
#include <span>

#include "composable_kernels/fused/flash_params.hpp"
#include "kernels/attention/flash_configs.hpp"

namespace rocm_sd {
namespace {

#define ROW(...) FlashConfig{__VA_ARGS__},
constexpr FlashConfig kNvidia[] = {ROCM_SD_FLASH_NVIDIA(ROW)},
                      kNvidiaGeneral[] = {ROCM_SD_FLASH_NVIDIA_GENERAL(ROW)};
constexpr FlashConfig kRdna3[] = {ROCM_SD_FLASH_RDNA3(ROW)},
                      kRdna3General[] = {ROCM_SD_FLASH_RDNA3_GENERAL(ROW)};
constexpr FlashConfig kRdna4[] = {ROCM_SD_FLASH_RDNA4(ROW)},
                      kRdna4General[] = {ROCM_SD_FLASH_RDNA4_GENERAL(ROW)};
constexpr FlashConfig kCdna3[] = {ROCM_SD_FLASH_CDNA3(ROW)},
                      kCdna3General[] = {ROCM_SD_FLASH_CDNA3_GENERAL(ROW)};
#undef ROW
#define ROW(...) FlashWgmmaConfig{__VA_ARGS__},
constexpr FlashWgmmaConfig kHopper[] = {ROCM_SD_FLASH_HOPPER(ROW)};
#undef ROW
#define ROW(...) FlashTmaConfig{__VA_ARGS__},
constexpr FlashTmaConfig kTma[] = {ROCM_SD_FLASH_TMA(ROW)};
#undef ROW
#define ROW(...) FlashSingleTileKvConfig{__VA_ARGS__},
constexpr FlashSingleTileKvConfig kSingleTileKv[] = {ROCM_SD_FLASH_SINGLE_TILE_KV(ROW)};
#undef ROW
#define ROW(...) FlashLargeDConfig{__VA_ARGS__},
constexpr FlashLargeDConfig kWideNvidia[] = {ROCM_SD_FLASH_LARGE_D_NVIDIA(ROW)},
                            kWideAmd[] = {ROCM_SD_FLASH_LARGE_D_AMD(ROW)};
#undef ROW

using Rows = std::span<const FlashConfig>;
Rows rows_of(GpuFamily family, bool general) {
  switch (family) {
    case GpuFamily::kRdna3: return general ? Rows(kRdna3General) : Rows(kRdna3);
    case GpuFamily::kRdna4: return general ? Rows(kRdna4General) : Rows(kRdna4);
    case GpuFamily::kCdna3: return general ? Rows(kCdna3General) : Rows(kCdna3);
    case GpuFamily::kNvidia: break;
  }
  return general ? Rows(kNvidiaGeneral) : Rows(kNvidia);
}
std::span<const FlashLargeDConfig> wide_rows_of(GpuFamily family) {
  if (family == GpuFamily::kNvidia) return kWideNvidia;
  return kWideAmd;
}

// AMD's families stage values transposed.
bool stages_transposed(GpuFamily family) { return family != GpuFamily::kNvidia; }

// Of warpgroup products against products by waves, measured on an H200, November 2026; few keys fill their
// tiles badly.
double wgmma_relative_cost(const AttentionProblem& p) {
  if (p.keys <= 128) return 1.5;
  if (p.head_dim == 512) return 0.55;
  return p.head_dim == 40 ? 0.9 : p.head_dim == 64 ? 0.8 : 0.75;
}

// With tiles by TMA, measured as those. Late fetches have not been: they are for the tuner.
double tma_relative_cost(const AttentionProblem& p, const FlashTmaConfig& c) {
  if (p.keys <= 128) return 2;
  if (c.head_dim == 64 && c.keys == 80 && p.keys <= 2048) return 0.62;
  return c.prefetch_after_mma ? 0.7 : 0.66;
}

// All keys at once, for up to 80 of them. Measured on an H200 with the 77 of a text, November 2026: 0.52 to
// 0.75 of the time of products by waves. The estimate compares kernels of equal tiles only roughly: this
// keeps it so.
constexpr double kSingleTileKvRelativeCost = 0.8;

constexpr int kSplits[] = {1, 2, 3, 4, 6, 8, 12, 16};

int64_t divide_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

}  // namespace

std::vector<FlashKernel> flash_candidates(const AttentionProblem& p, const GpuTraits& traits) {
  const bool general = p.masked || p.causal || !(p.scale > 0), transposed = stages_transposed(traits.family);
  const int pad = flash_row_pad(traits.lanes);
  std::vector<FlashKernel> fitting;
  for (const FlashConfig& c : rows_of(traits.family, general)) {
    if (c.head_dim != p.head_dim) continue;
    std::string name = concat(general ? "flash_general_" : "flash_", p.dtype, "_d", c.head_dim, "_q",
                              c.queries, "_k", c.keys, "_w", c.waves, "_s", c.stages);
    // Fragments of keys and values are read from LDS for 16 queries only: measured on an H200, November 2026.
    const double relative_cost = traits.family == GpuFamily::kNvidia && c.queries == 16 ? 1.3 : 1;
    fitting.push_back({std::move(name), c.queries * c.waves, c.keys, c.waves, c.groups,
                       2 * flash_lds_elements(c, transposed, pad), relative_cost});
  }
  if (traits.arch == "sm_90" && !general)  // only this generation has the instructions
    for (const FlashWgmmaConfig& c : kHopper) {
      if (c.head_dim != p.head_dim) continue;
      std::string name = concat("flash_wgmma_", p.dtype, "_d", c.head_dim, "_g", c.warpgroups, "x", c.groups);
      fitting.push_back({std::move(name), 64 * c.warpgroups, 64, 4 * c.warpgroups, c.groups,
                         flash_wgmma_lds_bytes(c), wgmma_relative_cost(p)});
    }
  if (traits.arch == "sm_90" && traits.tma && !general && p.keys > 0)
    for (const FlashTmaConfig& c : kTma) {
      if (c.head_dim != p.head_dim) continue;
      std::string name = concat("flash_tma_", p.dtype, "_d", c.head_dim, "_k", c.keys, "_g", c.warpgroups,
                                "x", c.groups, "_s", c.slots, "_t", c.ping_pong, "_l", c.prefetch_after_mma);
      fitting.push_back({std::move(name), 64 * c.warpgroups, c.keys, 4 * c.warpgroups, c.groups,
                         flash_tma_lds_bytes(c), tma_relative_cost(p, c), true});
    }
  if (traits.arch == "sm_90" && !general && p.keys > 0)
    for (const FlashSingleTileKvConfig& c : kSingleTileKv) {
      if (c.head_dim != p.head_dim || p.keys > c.keys) continue;
      std::string name = concat("flash_single_tile_kv_", p.dtype, "_d", c.head_dim, "_k", c.keys, "_g",
                                c.warpgroups, "x", c.groups);
      fitting.push_back({.name = std::move(name),
                         .queries = 64,
                         .keys = c.keys,
                         .waves = 4 * c.warpgroups,
                         .groups = c.groups,
                         .lds_bytes = flash_single_tile_kv_lds_bytes(c),
                         .relative_cost = kSingleTileKvRelativeCost,
                         .once = true});
    }
  for (const FlashLargeDConfig& c : wide_rows_of(traits.family)) {
    if (c.head_dim != p.head_dim) continue;
    std::string name =
        concat("flash_large_d_", p.dtype, "_d", c.head_dim, "_q", c.queries, "_k", c.keys, "_w", c.waves_q,
               "x", c.waves_k, "_c", c.chunk_dim, "x", c.chunk_keys, "_s", c.stages);
    fitting.push_back({std::move(name), c.queries, c.keys, c.waves_q * c.waves_k, 1,
                       2 * flash_large_d_lds_elements(c, transposed, pad), c.queries < 64 ? 2.0 : 1.0});
  }
  if (traits.arch == "sm_90" && !general && p.head_dim == 512)
    fitting.push_back({concat("flash_wgmma_large_d_", p.dtype, "_d512"), 64, 128, 8, 1,
                       kFlashWgmmaLargeDLdsBytes, wgmma_relative_cost(p)});
  std::erase_if(
      fitting, [&](const FlashKernel& k) { return static_cast<size_t>(k.lds_bytes) > traits.lds_per_group; });
  return fitting;
}

FlashPlan plan_flash(const FlashKernel& kernel, int splits, const AttentionProblem& p,
                     const GpuTraits& traits) {
  FlashPlan plan{.kernel = kernel};
  plan.tiles = divide_up(p.queries, kernel.queries);
  const int64_t key_tiles = std::max<int64_t>(divide_up(p.keys, kernel.keys), 1);
  const int64_t per_split = divide_up(key_tiles, std::max(splits, 1));
  plan.splits = static_cast<int>(divide_up(key_tiles, per_split));
  plan.keys_per_split = per_split * kernel.keys;

  if (kernel.once) {
    // Equal runs, one to a workgroup that has room at once; the kernel holds the keys of two heads.
    const int64_t room = int64_t{traits.compute_units} * kernel.groups;
    plan.run_tiles = std::min(divide_up(plan.tiles * p.batch * p.heads, room), plan.tiles + 1);
    plan.run_tiles = std::max<int64_t>(plan.run_tiles, 1);
  }

  // The products of a tile and its softmax, in the time of a product: exponentials and conversions cost about
  // as much as 32 channels. A workgroup begins and ends in the time of about a tile.
  const double tile =
      kernel.relative_cost * kernel.queries * kernel.keys * (2.0 * static_cast<double>(p.head_dim) + 32);
  const double start = 24.0 * kernel.queries * static_cast<double>(p.head_dim) + 60000;
  const double group = start + static_cast<double>(per_split) * tile;
  const int64_t groups = plan.tiles * p.batch * p.heads * plan.splits;
  const int64_t each = divide_up(groups, traits.compute_units);  // workgroups of the busiest compute unit
  // A compute unit is busy from about 8 waves of 32 lanes on.
  const double waves =
      static_cast<double>(std::min<int64_t>(each, kernel.groups) * kernel.waves) * traits.lanes / 32;
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

FlashPlan default_config(const AttentionProblem& p, const GpuTraits& traits) {
  FlashPlan best;
  for (const FlashKernel& kernel : flash_candidates(p, traits))
    for (const int splits : kSplits) {
      const FlashPlan plan = plan_flash(kernel, splits, p, traits);
      // Earlier rows are better where the estimate sees no difference.
      if (best.cost == 0 || plan.cost < 0.97 * best.cost) best = plan;
    }
  return best;
}

}  // namespace rocm_sd
