#include "kernels/attention/attention_map.hpp"

#include "base/error.hpp"

namespace rocm_sd {
namespace {

constexpr FamilySet kHopper = families_of<HopperFamily>(),
                    kNvidias = families_of<NvidiaFamily, HopperFamily>();

// Of an algorithm, the first row that matches gives the cost.
constexpr AttentionMapRow kMap[] = {
    {.families = kNvidias,
     .algorithm = FlashAlgorithm::kWaves,
     .tile_queries = exactly(16),
     .cost = "waves_16_queries",
     .reason = "fragments of keys and values are read from LDS for 16 queries only"},
    {.families = kAllFamilies,
     .algorithm = FlashAlgorithm::kWaves,
     .cost = "waves",
     .reason = "the kernel that every family has: heads of 32 to 160, any number of keys"},

    {.families = kHopper,
     .keys = at_most(128),
     .mask = FlashMask::kNone,
     .algorithm = FlashAlgorithm::kWgmma,
     .cost = "wgmma_few_keys",
     .reason = "few keys fill tiles of 64 badly"},
    {.families = kHopper,
     .head_dim = exactly(40),
     .mask = FlashMask::kNone,
     .algorithm = FlashAlgorithm::kWgmma,
     .cost = "wgmma_d40",
     .reason = "warpgroup MMA pads a head of 40 to 64 channels in LDS"},
    {.families = kHopper,
     .head_dim = exactly(64),
     .mask = FlashMask::kNone,
     .algorithm = FlashAlgorithm::kWgmma,
     .cost = "wgmma_d64",
     .reason = "warpgroup MMA reads its operands from LDS by itself"},
    {.families = kHopper,
     .mask = FlashMask::kNone,
     .algorithm = FlashAlgorithm::kWgmma,
     .cost = "wgmma",
     .reason = "warpgroup MMA reads its operands from LDS by itself"},

    {.families = kHopper,
     .keys = {1, 128},
     .mask = FlashMask::kNone,
     .algorithm = FlashAlgorithm::kTma,
     .cost = "tma_few_keys",
     .reason = "few keys fill its pipeline badly"},
    {.families = kHopper,
     .head_dim = exactly(64),
     .keys = {129, 2048},
     .mask = FlashMask::kNone,
     .algorithm = FlashAlgorithm::kTma,
     .tile_keys = exactly(80),
     .cost = "tma_d64_80_keys",
     .reason = "three workgroups of an SM with tiles of 80 keys beat four with 64 up to 2048 keys"},
    {.families = kHopper,
     .keys = from(1),
     .mask = FlashMask::kNone,
     .algorithm = FlashAlgorithm::kTma,
     .prefetches_after_mma = true,
     .cost = "tma_prefetch",
     .reason = "fetches after the MMA started: for the tuner, not measured against the others"},
    {.families = kHopper,
     .keys = from(1),
     .mask = FlashMask::kNone,
     .algorithm = FlashAlgorithm::kTma,
     .cost = "tma",
     .reason = "no lane computes addresses of keys and values"},

    {.families = kHopper,
     .keys = {1, 80},
     .mask = FlashMask::kNone,
     .algorithm = FlashAlgorithm::kSingleTileKv,
     .cost = "single_tile_kv",
     .reason = "the keys of a text are fetched once for many tiles of queries"},

    {.families = kAllFamilies,
     .head_dim = exactly(512),
     .algorithm = FlashAlgorithm::kLargeD,
     .tile_queries = at_most(63),
     .cost = "large_d_32_queries",
     .reason = "the VAE's head: half a tile of queries reads keys and values twice as often"},
    {.families = kAllFamilies,
     .head_dim = exactly(512),
     .algorithm = FlashAlgorithm::kLargeD,
     .cost = "large_d",
     .reason = "the VAE's head: a workgroup shares the accumulators of a tile"},
    {.families = kHopper,
     .head_dim = exactly(512),
     .keys = at_most(128),
     .mask = FlashMask::kNone,
     .algorithm = FlashAlgorithm::kWgmmaLargeD,
     .cost = "wgmma_few_keys",
     .reason = "few keys fill tiles of 128 badly"},
    {.families = kHopper,
     .head_dim = exactly(512),
     .mask = FlashMask::kNone,
     .algorithm = FlashAlgorithm::kWgmmaLargeD,
     .cost = "wgmma_d512",
     .reason = "the VAE's head by warpgroup MMA"},
};

}  // namespace

std::span<const AttentionMapRow> attention_map() { return kMap; }

const char* to_text(FlashAlgorithm algorithm) {
  switch (algorithm) {
    case FlashAlgorithm::kWaves: return "waves";
    case FlashAlgorithm::kWgmma: return "wgmma";
    case FlashAlgorithm::kTma: return "tma";
    case FlashAlgorithm::kSingleTileKv: return "single_tile_kv";
    case FlashAlgorithm::kLargeD: return "large_d";
    case FlashAlgorithm::kWgmmaLargeD: return "wgmma_large_d";
  }
  return "";
}

std::string conditions_of(const AttentionMapRow& row) {
  std::string text;
  const auto add = [&](const std::string& part) { text += concat(text.empty() ? "" : ", ", part); };
  const auto add_range = [&](const char* name, const Range& range) {
    if (range != kAny) add(concat(name, " ", to_text(range)));
  };
  add_range("head_dim", row.head_dim);
  add_range("keys", row.keys);
  if (row.mask == FlashMask::kNone) add("no mask");
  add_range("tiles of queries", row.tile_queries);
  add_range("tiles of keys", row.tile_keys);
  if (row.prefetches_after_mma) add("tiles fetched after the MMA started");
  return text.empty() ? "any" : text;
}

FlashMask mask_of(const AttentionProblem& p) {
  return p.masked || p.causal || !(p.scale > 0) ? FlashMask::kAny : FlashMask::kNone;
}

const AttentionMapRow* attention_row(const KernelTables& family, const AttentionProblem& p,
                                     FlashAlgorithm algorithm, const FlashTile& tile) {
  for (const AttentionMapRow& row : kMap)
    if (row.algorithm == algorithm && row.families.has(family.index) && row.head_dim.has(p.head_dim) &&
        row.keys.has(p.keys) && (row.mask == FlashMask::kAny || mask_of(p) == FlashMask::kNone) &&
        row.tile_queries.has(tile.queries) && row.tile_keys.has(tile.keys) &&
        (!row.prefetches_after_mma || tile.prefetch == FlashPrefetch::kAfterMma))
      return &row;
  return nullptr;
}

}  // namespace rocm_sd
