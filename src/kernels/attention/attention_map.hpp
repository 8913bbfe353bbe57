// Which algorithm of flash attention takes a problem on which family, and why. flash_plan.cpp reads the rows;
// so does docs/reference/kernel-map.md.
#pragma once

#include <span>

#include "kernels/attention/attention_impl.hpp"
#include "kernels/family/kernel_map.hpp"
#include "kernels/family/kernel_tables.hpp"

namespace rocm_sd {

enum class FlashAlgorithm {
  kWaves,         // waves multiply tiles that lanes copied to LDS (fused/flash_attention.hpp)
  kWgmma,         // warpgroups multiply tiles that lanes copied to LDS
  kTma,           // warpgroups multiply tiles that TMA fetched
  kSingleTileKv,  // all keys in LDS at once
  kLargeD,        // a head too wide for a wave's registers
  kWgmmaLargeD,   // the same by warpgroup MMA
};
const char* to_text(FlashAlgorithm algorithm);

// What of a configuration a row may ask for.
struct FlashTile {
  int queries = 0, keys = 0;  // of a wave (kWaves), of the workgroup
  FlashPrefetch prefetch = FlashPrefetch::kBeforeMma;
};

struct AttentionMapRow {
  FamilySet families;
  Range head_dim, keys;
  FlashMask mask = FlashMask::kAny;  // kNone: problems without a mask, not causal, of positive scale
  FlashAlgorithm algorithm;
  Range tile_queries, tile_keys;
  bool prefetches_after_mma = false;  // tiles that do
  const char* cost;                   // its name in share/cost/<family>.json, relative to "waves"
  const char* reason;
};
std::span<const AttentionMapRow> attention_map();
std::string conditions_of(const AttentionMapRow& row);  // "keys 1 to 80, no mask"

// Whether the problem has scores that only kernels for any mask compute.
FlashMask mask_of(const AttentionProblem& problem);

// The first row for such a tile, or null: the family has no such kernel for the problem.
const AttentionMapRow* attention_row(const KernelTables& family, const AttentionProblem& problem,
                                     FlashAlgorithm algorithm, const FlashTile& tile);

}  // namespace rocm_sd
