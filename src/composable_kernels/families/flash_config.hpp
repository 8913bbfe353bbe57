// The configurations of flash attention's kernels: one type for each algorithm, shared by the tables of
// families/<family>.hpp, the launcher and the .hip file. A name is made here alone.
#pragma once

#include "composable_kernels/families/kernel_name.hpp"
#include "composable_kernels/tile/flash_lds.hpp"

namespace rocm_sd {

// Which scores a kernel computes: all of them at a positive scale, or also masked and causal ones.
enum class FlashMask { kNone, kAny };
// Where a wave keeps its queries.
enum class QueryStore { kRegisters, kLds };
// Two warpgroups multiply at the same time, or alternate: one multiplies while the other exponentiates.
enum class WarpgroupSchedule { kTogether, kPingPong };
// When the next tile is fetched: before the products of this one start, or while they run.
enum class FlashPrefetch { kBeforeMma, kAfterMma };

// fused/flash_attention.hpp: every family.
struct FlashConfig {
  int head_dim = 0;
  int queries = 16;   // of a wave
  int keys = 32;      // of a tile
  int waves = 4;      // of a workgroup
  int stages = 2;     // tiles of keys and values in LDS
  int occupancy = 1;  // workgroups that a compute unit should hold at once
  QueryStore query_store = QueryStore::kRegisters;
};
constexpr KernelName kernel_name(const FlashConfig& c, const char* type, FlashMask mask) {
  return KernelName(mask == FlashMask::kAny ? "flash_general_" : "flash_", type, "_d", c.head_dim, "_q",
                    c.queries, "_k", c.keys, "_w", c.waves, "_s", c.stages);
}
constexpr FlashLds flash_lds(const FlashConfig& c, bool transposed, int pad) {
  return {c.head_dim, c.waves * c.queries, c.keys, c.stages, c.query_store == QueryStore::kLds, transposed,
          pad};
}

// Heads too wide for a wave: every family.
struct FlashLargeDConfig {
  int head_dim = 0;
  int queries = 0, keys = 0;                  // of a workgroup's tile
  int waves_q = 0, waves_k = 0;               // the waves' rectangle of its scores
  int chunk_dim = 0, chunk_keys = 0;          // of the pieces of K and V that lie in LDS
  int stages = 1;                             // pieces in LDS
  QueryStore query_store = QueryStore::kLds;  // kRegisters: waves_q is 1
};
constexpr KernelName kernel_name(const FlashLargeDConfig& c, const char* type) {
  return KernelName("flash_large_d_", type, "_d", c.head_dim, "_q", c.queries, "_k", c.keys, "_w", c.waves_q,
                    "x", c.waves_k, "_c", c.chunk_dim, "x", c.chunk_keys, "_s", c.stages);
}
constexpr FlashLargeDLds flash_lds(const FlashLargeDConfig& c, bool transposed, int pad) {
  return {c.head_dim,   c.queries, c.keys,    c.chunk_dim,
          c.chunk_keys, c.stages,  c.waves_k, c.query_store == QueryStore::kLds,
          transposed,   pad};
}

// By warpgroup MMA, 64 keys to a tile.
struct FlashWgmmaConfig {
  int head_dim = 0;
  int warpgroups = 1;  // of a workgroup; 64 queries to each
  int occupancy = 1;
};
constexpr KernelName kernel_name(const FlashWgmmaConfig& c, const char* type) {
  return KernelName("flash_wgmma_", type, "_d", c.head_dim, "_g", c.warpgroups, "x", c.occupancy);
}
constexpr int flash_lds_bytes(const FlashWgmmaConfig& c) { return flash_wgmma_lds_bytes(c.head_dim); }

// The same with tiles fetched by TMA.
struct FlashTmaConfig {
  int head_dim = 0;
  int keys = 64;  // of a tile
  int warpgroups = 1;
  int occupancy = 1;
  int stages = 6;  // tiles of keys or values in LDS
  WarpgroupSchedule schedule = WarpgroupSchedule::kTogether;
  FlashPrefetch prefetch = FlashPrefetch::kBeforeMma;
};
constexpr KernelName kernel_name(const FlashTmaConfig& c, const char* type) {
  return KernelName("flash_tma_", type, "_d", c.head_dim, "_k", c.keys, "_g", c.warpgroups, "x", c.occupancy,
                    "_s", c.stages, "_t", c.schedule == WarpgroupSchedule::kPingPong ? 1 : 0, "_l",
                    c.prefetch == FlashPrefetch::kAfterMma ? 1 : 0);
}
constexpr int flash_lds_bytes(const FlashTmaConfig& c) {
  return flash_tma_lds_bytes(c.head_dim, c.keys, c.stages);
}

// All keys in LDS at once, by warpgroup MMA.
struct FlashSingleTileKvConfig {
  int head_dim = 0;
  int keys = 80;  // at most
  int warpgroups = 1;
  int occupancy = 1;
};
constexpr KernelName kernel_name(const FlashSingleTileKvConfig& c, const char* type) {
  return KernelName("flash_single_tile_kv_", type, "_d", c.head_dim, "_k", c.keys, "_g", c.warpgroups, "x",
                    c.occupancy);
}
constexpr int flash_lds_bytes(const FlashSingleTileKvConfig& c) {
  return flash_single_tile_kv_lds_bytes(c.head_dim, c.keys);
}

// A head of 512 by warpgroup MMA.
struct FlashWgmmaLargeDConfig {
  int head_dim = 512;
  int queries = 64, keys = 128;  // of a workgroup's tile
  int warpgroups = 2;
};
constexpr KernelName kernel_name(const FlashWgmmaLargeDConfig& c, const char* type) {
  return KernelName("flash_wgmma_large_d_", type, "_d", c.head_dim);
}
constexpr int flash_lds_bytes(const FlashWgmmaLargeDConfig&) { return FlashWgmmaLargeDLds::kBytes; }

}  // namespace rocm_sd
