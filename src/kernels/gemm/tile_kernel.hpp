// The host's GEMM inner loops: a strip of rows times a panel of packed weights, and the epilogue that
// finishes a tile. Compiled per instruction set (tile_kernel_isa.cpp); nothing here may have an inline
// function.
//
// Terms: a strip is kStripRows rows of the left matrix, given by pointers; a panel is `columns` columns of
// the right matrix, packed so that row k of the panel is contiguous; a tile is one strip times one panel,
// kStripRows x columns floats, stored densely.
#pragma once

#include <cstdint>

namespace rocm_sd {

constexpr int kStripRows = 6;

// tiles[strip] (+)= rows[strip] * panel, for every strip. The depth is cut into segments: in segment s row r
// reads segment_length[s] values at pointers[s * pointer_stride + r].
struct PanelProduct {
  const void* const* pointers;  // to floats; paired: to bf16
  int64_t pointer_stride;       // a multiple of kStripRows
  const int* segment_length;
  int segments;
  int strips;
  const void* panel;  // [sum of segment_length, columns] floats; paired: [.. / 2, columns, 2] bf16
  float* tiles;       // [strips, kStripRows, columns]
  bool accumulate;    // else the tiles' old values are ignored
};

// Writes out = act(tile + bias + residual), or value * gelu(gate) where gated (value: the first half of the
// panel's columns). Row r of the tiles belongs to element out_offset[r] of out and of residual.
struct PanelEpilogue {
  const float* tiles;        // [strips, kStripRows, columns]
  int rows;                  // those that are written
  int columns;               // of a tile
  int valid_columns;         // of the output: at most columns, or columns / 2 where gated
  const float* const* bias;  // per row: [columns], in the panel's order
  const int64_t* out_offset;
  int activation;  // an Activation
  bool gated;
  bool bf16;             // type of out and residual, else f32
  const void* residual;  // may be null; already at the panel's first column
  void* out;             // already at the panel's first column
};

// One instruction set's functions.
struct TileKernels {
  int wide, narrow;  // columns of a panel: the fast one, and the one for few outputs
  void (*multiply_wide)(const PanelProduct&);
  void (*multiply_narrow)(const PanelProduct&);
  // bf16 in pairs, summed in float; segment lengths are even. Fast only if host_has_bf16().
  void (*multiply_wide_paired)(const PanelProduct&);
  void (*multiply_narrow_paired)(const PanelProduct&);
  void (*finish)(const PanelEpilogue&);
  void (*bf16_to_float)(const uint16_t* from, float* to, int64_t count);
  void (*f16_to_float)(const uint16_t* from, float* to, int64_t count);
};

// For the host's instruction set (host_isa()).
const TileKernels& tile_kernels();

namespace isa_baseline {
extern const TileKernels kTileKernels;
}
namespace isa_v3 {
extern const TileKernels kTileKernels;
}
namespace isa_v4 {
extern const TileKernels kTileKernels;
}

}  // namespace rocm_sd
