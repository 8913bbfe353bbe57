// The softmax between attention's two matrix products, for one tile of queries and one of keys at a time, and
// the loads and stores around it. Compiled per instruction set (attention_softmax_isa.cpp); nothing here may
// have an inline function.
#pragma once

#include <cstdint>

namespace rocm_sd {

// Rows of f32 or bf16, `stride` elements apart.
struct HeadRows {
  const void* data;
  int64_t stride;
  bool bf16;  // else f32
};

// Scores to weights: weights = e^(scale s + mask - highest), where highest is the row's maximum so far; what
// older tiles left in `sums` and `total` is scaled to the new maximum.
struct SoftenJob {
  float* scores;  // [rows, padded_keys]: products q k; overwritten
  void* weights;  // [rows, padded_keys]; 0 for keys that are hidden or only pad
  bool weights_bf16;
  int64_t rows, keys, padded_keys;  // of this tile; padded_keys is a multiple of 16
  float* sums;                      // [rows, head_dim]
  int64_t head_dim;
  float *highest, *total;            // [rows]; highest in units of log2 e
  bool first;                        // tile of keys: highest and total hold nothing yet, sums zeros
  float scale;                       // of the scores
  const float* mask;                 // of row 0 and key 0 of this tile, or null
  int64_t mask_stride, masked_rows;  // rows beyond the last masked one take its mask
  bool causal;
  int64_t first_query, first_key;
};

// y = sums / total, zeros where every key was hidden.
struct FinishJob {
  const float* sums;   // [rows, head_dim]
  const float* total;  // [rows]
  int64_t rows, head_dim;
  void* y;
  int64_t y_stride;
  bool y_bf16;
};

struct SoftenKernels {
  // rows x cols elements to [padded_rows, padded_cols], zero beyond.
  void (*load)(const HeadRows& from, int64_t rows, int64_t cols, int64_t padded_rows, int64_t padded_cols,
               void* to, bool to_bf16);
  // Element (i, j) to row_places[i] + col_places[j].
  void (*scatter)(const HeadRows& from, int64_t rows, int64_t cols, const int64_t* row_places,
                  const int64_t* col_places, void* to, bool to_bf16);
  void (*softmax)(const SoftenJob&);
  void (*finish)(const FinishJob&);
};

// Needs AVX512-BF16 (host_has_bf16()) and x86-64.
namespace isa_v4_bf16 {
extern const SoftenKernels kSoftenKernels;
}
namespace isa_baseline {
extern const SoftenKernels kSoftenKernels;
}
namespace isa_v3 {
extern const SoftenKernels kSoftenKernels;
}
namespace isa_v4 {
extern const SoftenKernels kSoftenKernels;
}

}  // namespace rocm_sd
