// The configurations of flash attention that are compiled, per family; launcher and kernels read the same
// rows.
#pragma once

namespace rocm_sd {

struct FlashConfig {
  int head_dim, queries, keys;  // queries of a wave, keys of a tile
  int waves, stages;            // of a workgroup; tiles of keys and values in LDS
  int groups;                   // workgroups that a compute unit should hold at once
  int queries_in_lds;           // 1 where registers are too short for them
};

// Heads too wide for a wave: flash_large_d.hpp.
struct FlashLargeDConfig {
  int head_dim, queries, keys;  // queries and keys of a workgroup's tile
  int waves_q, waves_k;         // the waves' rectangle of its scores
  int chunk_dim, chunk_keys;    // of the pieces of K and V that lie in LDS
  int stages;                   // pieces in LDS
};

// X(head_dim, queries, keys, waves, stages, groups, queries_in_lds), the ones for any mask in *_GENERAL.
#define ROCM_SD_FLASH_NVIDIA(X) \
  X(32, 32, 32, 4, 3, 4, 0)     \
  X(32, 32, 64, 4, 2, 3, 0)     \
  X(32, 16, 64, 4, 2, 4, 0)     \
  X(40, 32, 32, 4, 3, 4, 0)     \
  X(40, 64, 32, 4, 3, 2, 0)     \
  X(40, 32, 64, 4, 2, 3, 0)     \
  X(40, 16, 64, 4, 2, 4, 0)     \
  X(64, 32, 32, 4, 3, 3, 0)     \
  X(64, 32, 64, 4, 2, 3, 0)     \
  X(64, 16, 64, 4, 2, 4, 0)     \
  X(80, 32, 64, 4, 2, 2, 0)     \
  X(80, 32, 32, 4, 3, 2, 0)     \
  X(80, 16, 64, 4, 2, 3, 0)     \
  X(128, 32, 32, 4, 2, 2, 0)    \
  X(128, 16, 64, 4, 2, 3, 0)    \
  X(160, 16, 64, 4, 2, 2, 0)    \
  X(160, 16, 32, 4, 2, 2, 0)
#define ROCM_SD_FLASH_NVIDIA_GENERAL(X) \
  X(32, 16, 32, 4, 2, 3, 0)             \
  X(40, 16, 32, 4, 2, 3, 0)             \
  X(64, 16, 32, 4, 2, 3, 0)             \
  X(80, 16, 32, 4, 2, 2, 0)             \
  X(128, 16, 32, 4, 2, 2, 0)            \
  X(160, 16, 32, 4, 2, 2, 0)

#define ROCM_SD_FLASH_RDNA3(X) \
  X(32, 16, 64, 8, 2, 1, 0)    \
  X(32, 16, 32, 4, 2, 1, 0)    \
  X(40, 16, 64, 8, 2, 1, 0)    \
  X(40, 32, 32, 8, 2, 1, 0)    \
  X(40, 16, 32, 4, 2, 1, 0)    \
  X(64, 16, 64, 8, 2, 1, 0)    \
  X(64, 32, 32, 8, 2, 1, 0)    \
  X(64, 16, 32, 4, 2, 1, 0)    \
  X(80, 16, 64, 8, 2, 1, 0)    \
  X(80, 16, 32, 4, 2, 1, 0)    \
  X(128, 16, 32, 8, 2, 1, 0)   \
  X(160, 16, 32, 4, 1, 1, 1)
#define ROCM_SD_FLASH_RDNA3_GENERAL(X) \
  X(32, 16, 32, 4, 2, 1, 0)            \
  X(40, 16, 32, 4, 2, 1, 0)            \
  X(64, 16, 32, 4, 2, 1, 0)            \
  X(80, 16, 32, 4, 2, 1, 0)            \
  X(128, 16, 16, 4, 2, 1, 1)           \
  X(160, 16, 16, 4, 1, 1, 1)

#define ROCM_SD_FLASH_RDNA4(X) \
  X(32, 16, 64, 8, 2, 1, 0)    \
  X(32, 16, 32, 4, 2, 1, 0)    \
  X(40, 16, 64, 8, 2, 1, 0)    \
  X(40, 32, 32, 8, 2, 1, 0)    \
  X(40, 16, 32, 4, 2, 1, 0)    \
  X(64, 16, 64, 8, 2, 1, 0)    \
  X(64, 32, 32, 8, 2, 1, 0)    \
  X(64, 16, 32, 4, 2, 1, 0)    \
  X(80, 16, 64, 8, 2, 1, 0)    \
  X(80, 16, 32, 4, 2, 1, 0)    \
  X(128, 16, 32, 8, 2, 1, 0)   \
  X(160, 16, 32, 8, 2, 1, 0)
#define ROCM_SD_FLASH_RDNA4_GENERAL(X) \
  X(32, 16, 32, 4, 2, 1, 0)            \
  X(40, 16, 32, 4, 2, 1, 0)            \
  X(64, 16, 32, 4, 2, 1, 0)            \
  X(80, 16, 32, 4, 2, 1, 0)            \
  X(128, 16, 32, 4, 2, 1, 0)           \
  X(160, 16, 32, 4, 2, 1, 0)

#define ROCM_SD_FLASH_CDNA3(X) \
  X(32, 32, 64, 4, 2, 1, 0)    \
  X(32, 16, 64, 4, 2, 1, 0)    \
  X(40, 32, 64, 4, 2, 1, 0)    \
  X(40, 16, 64, 4, 2, 1, 0)    \
  X(64, 32, 64, 4, 2, 1, 0)    \
  X(64, 16, 64, 4, 2, 1, 0)    \
  X(80, 32, 64, 4, 2, 1, 0)    \
  X(80, 16, 64, 4, 2, 1, 0)    \
  X(128, 32, 32, 4, 2, 1, 0)   \
  X(128, 16, 32, 4, 2, 1, 0)   \
  X(160, 16, 32, 4, 2, 1, 0)
#define ROCM_SD_FLASH_CDNA3_GENERAL(X) \
  X(32, 16, 64, 4, 2, 1, 0)            \
  X(40, 16, 64, 4, 2, 1, 0)            \
  X(64, 16, 64, 4, 2, 1, 0)            \
  X(80, 16, 64, 4, 2, 1, 0)            \
  X(128, 16, 32, 4, 2, 1, 0)           \
  X(160, 16, 32, 4, 2, 1, 0)

// X(head_dim, queries, keys, waves_q, waves_k, chunk_dim, chunk_keys, stages)
#define ROCM_SD_FLASH_LARGE_D_NVIDIA(X) \
  X(512, 64, 64, 4, 2, 128, 16, 4)      \
  X(512, 64, 128, 2, 4, 64, 16, 4)      \
  X(512, 64, 64, 2, 4, 128, 16, 4)      \
  X(512, 32, 64, 2, 4, 128, 16, 2)
#define ROCM_SD_FLASH_LARGE_D_AMD(X) X(512, 32, 64, 2, 4, 128, 16, 1)

// By warpgroup products (flash_wgmma.hpp), 64 keys to a tile.
struct FlashWgmmaConfig {
  int head_dim, warpgroups;  // 64 queries to a warpgroup
  int groups;                // workgroups that a compute unit should hold at once
};
// X(head_dim, warpgroups, groups)
#define ROCM_SD_FLASH_HOPPER(X) \
  X(40, 2, 2)                   \
  X(64, 1, 3)                   \
  X(80, 2, 1)                   \
  X(128, 2, 1)
// Bytes of LDS: two tiles of keys, two of values, in panels of 64 channels, and room to align them.
constexpr int flash_wgmma_lds_bytes(const FlashWgmmaConfig& c) {
  return 4 * ((c.head_dim + 63) / 64) * 64 * 64 * 2 + 1024;
}

// The same with tiles fetched by TMA (flash_tma.hpp).
struct FlashTmaConfig {
  int head_dim, keys;      // keys of a tile
  int warpgroups;          // 64 queries to a warpgroup
  int groups;              // workgroups that a compute unit should hold at once
  int slots;               // tiles of keys or values in LDS
  int ping_pong;           // 1: two warpgroups multiply in turn
  int prefetch_after_mma;  // 1: tiles are fetched while products are under way, not before
};
// X(head_dim, keys, warpgroups, groups, slots, ping_pong, prefetch_after_mma)
#define ROCM_SD_FLASH_TMA(X) \
  X(40, 80, 4, 1, 12, 0, 0)  \
  X(40, 80, 2, 2, 8, 0, 0)   \
  X(40, 80, 4, 1, 12, 0, 1)  \
  X(64, 64, 1, 4, 6, 0, 0)   \
  X(64, 80, 1, 3, 6, 0, 0)   \
  X(64, 64, 2, 2, 12, 1, 1)  \
  X(80, 80, 2, 1, 8, 0, 0)   \
  X(128, 64, 1, 2, 6, 0, 0)
// Bytes of LDS: the tiles in panels of 64 channels, two barriers to each, and room to align them.
constexpr int flash_tma_lds_bytes(const FlashTmaConfig& c) {
  return c.slots * ((c.head_dim + 63) / 64 * 64 * c.keys * 2 + 16) + 1024;
}

// All keys in LDS (flash_single_tile_kv.hpp).
struct FlashSingleTileKvConfig {
  int head_dim, keys;  // keys: at most so many
  int warpgroups;      // of a workgroup
  int groups;          // workgroups that a compute unit should hold at once
};
// X(head_dim, keys, warpgroups, groups)
#define ROCM_SD_FLASH_SINGLE_TILE_KV(X) \
  X(40, 80, 2, 2)                       \
  X(40, 80, 4, 1)                       \
  X(64, 80, 5, 1)                       \
  X(64, 80, 3, 1)                       \
  X(80, 80, 4, 1)                       \
  X(80, 80, 2, 1)
// Bytes of LDS: keys and values of two heads in panels of 64 channels, and room to align them.
constexpr int flash_single_tile_kv_lds_bytes(const FlashSingleTileKvConfig& c) {
  return 2 * 2 * ((c.head_dim + 63) / 64 * 64 * c.keys * 2) + 1024;
}

// flash_wgmma_large_d.hpp: Q, P, 8 slots of 16 KB, two maxima per query, and room to align them.
inline constexpr int kFlashWgmmaLargeDLdsBytes = (10 * 64 * 64 + 8 * 128 * 64) * 2 + 2 * 64 * 4 + 1024;

// 16-bit elements of LDS; FlashAttention::kLdsElements says the same. transposed: how values are staged;
// pad: flash_row_pad().
constexpr int flash_lds_elements(const FlashConfig& c, bool transposed, int pad) {
  const int padded = (c.head_dim + 15) / 16 * 16, ld = padded + pad;
  const int values = transposed ? padded * (c.keys + pad) : c.keys * ld;
  const int staged = c.stages * (c.keys * ld + values), rows = c.waves * c.queries * ld;
  return c.queries_in_lds ? staged + rows : (staged > rows ? staged : rows);
}

constexpr int flash_large_d_lds_elements(const FlashLargeDConfig& c, bool transposed, int pad) {
  const int keys = c.keys * (c.chunk_dim + pad);
  const int values = transposed ? c.head_dim * (c.chunk_keys + pad) : c.chunk_keys * (c.head_dim + pad);
  return c.queries * (c.head_dim + pad + c.keys + pad) + c.stages * (keys > values ? keys : values) +
         2 * c.queries * (c.waves_k + 2);
}

}  // namespace rocm_sd
