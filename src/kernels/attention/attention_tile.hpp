// The host's attention: packing of one head's keys and values, and one tile of queries against all of them.
// Compiled per instruction set (attention_tile_isa.cpp); nothing here may have an inline function.
//
// Terms: a cell is one f32, or a pair of bf16 for the kernels that multiply bf16 in hardware (pack = 2);
// depths count cells. A tile of keys is `tile_keys` keys (the last may be shorter); a panel is 1 to 3 vectors
// of columns, packed so that each step of the product's depth is contiguous. Keys are packed as
// [tile][panel][depth of head_dim][panel width], zero beyond the last key; values as [tile][panel][depth of
// the tile's keys][panel width], zero beyond the last channel.
#pragma once

#include <cstdint>

namespace rocm_sd {

// How one head is cut up; the same for all heads of a problem.
struct AttentionTiling {
  int64_t queries, keys, head_dim;
  int64_t pack;                     // elements per cell
  int64_t tile_queries;             // a multiple of the strip's rows
  int64_t tile_keys;                // a multiple of three vectors
  int64_t padded_keys, padded_dim;  // to whole vectors
  int64_t scratch;                  // cells of scratch of one tile of queries
};

struct AttentionRows {
  const void* data;  // first element of the head's first row
  int64_t stride;    // elements from row to row
  bool bf16;         // else f32
};

struct AttentionTileJob {
  const AttentionTiling* tiling;
  AttentionRows q;
  const float* keys;    // packed
  const float* values;  // packed
  const float* mask;    // [queries, keys] of this head, or null
  int64_t mask_query_stride;
  bool causal;
  float scale;  // of the scores
  int64_t first_query;
  float* scratch;  // 64-byte aligned
  void* y;         // as q, but for the stride
  int64_t y_stride;
};

struct AttentionKernels {
  int lanes, strip_rows, pack;
  // Packs the tile of keys that begins at first_key: into its place in the whole of `packed`.
  void (*pack_keys)(const AttentionTiling&, const AttentionRows& k, int64_t first_key, float* packed);
  void (*pack_values)(const AttentionTiling&, const AttentionRows& v, int64_t first_key, float* packed);
  void (*attend)(const AttentionTileJob&);
};

// Needs AVX512-BF16 (host_has_bf16()) and x86-64.
namespace isa_v4_bf16 {
extern const AttentionKernels kAttentionKernels;
}
namespace isa_baseline {
extern const AttentionKernels kAttentionKernels;
}
namespace isa_v3 {
extern const AttentionKernels kAttentionKernels;
}
namespace isa_v4 {
extern const AttentionKernels kAttentionKernels;
}

}  // namespace rocm_sd
