// LDS that the kernels of flash attention take: the launcher asks for it by a row of a family's table
// (families/flash_config.hpp), the bodies by their own sizes, and both get it here.
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

// 16-bit elements behind each row of a tile in LDS, so that neighbouring rows begin in other banks: 16 bytes
// where lanes read 16 bytes of a row; 8 where they read 8, as waves of 64 lanes do (16 rows are then read at
// once, and of 16 bytes every second row would begin in the same bank).
constexpr int flash_row_pad(int lanes) { return lanes == 64 ? 4 : 8; }
// The same behind every 8 columns of a transposed tile: lanes write pairs of keys, 8 columns one after
// another, and those of 32 lanes that follow with the next 8 columns then meet other banks.
constexpr int flash_column_skip(int keys, int pad) {
  const int pairs = keys / 2, banks = 32;
  return pairs < banks ? ((pairs - 8 * (keys + pad) / 2) % banks + banks) % banks * 2 : 0;
}
constexpr int flash_transposed_elements(int columns, int keys, int pad) {
  return columns * (keys + pad) + columns / 8 * flash_column_skip(keys, pad);
}

// ---- fused/flash_attention.hpp, fused/flash_large_d.hpp: elements of 16 bits ----

struct FlashLds {
  int head_dim, queries, keys, stages;  // queries: of a workgroup
  bool queries_stay;                    // in LDS beside the tiles, else they only pass through
  bool transposed;                      // how values lie
  int pad;                              // of a row: flash_row_pad()
};
constexpr int flash_lds_elements(const FlashLds& c) {
  const int padded = (c.head_dim + 15) / 16 * 16, row = padded + c.pad;
  const int values = c.transposed ? flash_transposed_elements(padded, c.keys, c.pad) : c.keys * row;
  const int tiles = c.stages * (c.keys * row + values), queries = c.queries * row;
  return c.queries_stay ? tiles + queries : (tiles > queries ? tiles : queries);
}

struct FlashLargeDLds {
  int head_dim, queries, keys, chunk_dim, chunk_keys, stages;
  int waves_k;  // that share a query's scores
  bool transposed;
  int pad;
};
// Queries, weights, the chunks' ring; floats: a fold of each query for each of waves_k, two bases.
constexpr int flash_large_d_lds_elements(const FlashLargeDLds& c) {
  const int keys = c.keys * (c.chunk_dim + c.pad);
  const int values = c.transposed ? flash_transposed_elements(c.head_dim, c.chunk_keys, c.pad)
                                  : c.chunk_keys * (c.head_dim + c.pad);
  return c.queries * (c.head_dim + c.pad + c.keys + c.pad) + c.stages * (keys > values ? keys : values) +
         2 * c.queries * (c.waves_k + 2);
}

// ---- hopper/flash_*.hpp: bytes ----

// A tile of keys or values: panels of 64 channels, 2 bytes an element.
constexpr int flash_panels(int head_dim) { return (head_dim + 63) / 64; }
constexpr int flash_tile_bytes(int head_dim, int keys) { return flash_panels(head_dim) * 64 * keys * 2; }
constexpr int kFlashAlignment = 1024;   // of the first tile: bytes more, to begin there
constexpr int kFlashBarrierBytes = 16;  // two to a stage

// Two tiles of keys and two of values.
constexpr int kFlashWgmmaKeys = 64, kFlashWgmmaStages = 2;
constexpr int flash_wgmma_lds_bytes(int head_dim) {
  return 2 * kFlashWgmmaStages * flash_tile_bytes(head_dim, kFlashWgmmaKeys) + kFlashAlignment;
}
constexpr int flash_tma_lds_bytes(int head_dim, int keys, int stages) {
  return stages * (flash_tile_bytes(head_dim, keys) + kFlashBarrierBytes) + kFlashAlignment;
}
// Keys and values of two heads.
constexpr int kFlashSingleTileKvHeads = 2;
constexpr int flash_single_tile_kv_lds_bytes(int head_dim, int keys) {
  return kFlashSingleTileKvHeads * 2 * flash_tile_bytes(head_dim, keys) + kFlashAlignment;
}
// A head of 512: elements, from the first on: Q [64][512] in panels [64][64], P [64][128], a ring of 8 stages
// of [128][64]; behind them two floats for each query.
struct FlashWgmmaLargeDLds {
  static constexpr int kPanel = 64 * 64, kStages = 8, kStageElements = 128 * 64;
  static constexpr int kWeights = 8 * kPanel, kRing = kWeights + 2 * kPanel,
                       kMaxima = kRing + kStages * kStageElements;
  static constexpr int kBytes = kMaxima * 2 + 2 * 64 * 4 + kFlashAlignment;
};

}  // namespace rocm_sd
