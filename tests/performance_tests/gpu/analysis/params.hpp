// What the kernels of analysis.hip take: shared with the program that launches them.
#pragma once

#include "composable_kernels/fused/gemm.hpp"

namespace rocm_sd::analysis {

constexpr int kThreads = 256;  // of every workgroup but the matrix product's

// Each lane reads `rounds` elements (packs of 1, 2 or 4 floats); neighbouring lanes' are `stride` elements
// apart. y [threads of the grid]: the sum of what a lane read. rounds: a multiple of kAhead.
constexpr int kAhead = 8;  // reads under way before the first is used
struct ReadParams {
  const float* x;
  float* y;
  int64_t stride;
  int32_t rounds;
};

// y[r] = the sum of row r of x [rows, columns]. columns: a multiple of 64 kAhead; rows of kThreads.
struct RowParams {
  const float* x;
  float* y;
  int32_t columns;
};

// y [columns, rows] = the transpose of x [rows, columns]; both multiples of kTile.
constexpr int kTile = 32;
struct TransposeParams {
  const float* x;
  float* y;
  int32_t rows, columns;
};

// Each lane reads kAhead rounds words of LDS; neighbouring lanes' are `stride` words apart.
constexpr int kLdsWords = 4096, kLdsStep = 64;  // a step changes no word's bank
struct LdsParams {
  float* y;  // the sum of what a lane read
  int32_t stride, rounds;
};

// y[b][r][c] = sum over k of x[b][r][k] w[b][c][k], rounded once. Element (c, k) of w lies at c w_column + k
// w_depth. analysis_product_tiled: w_depth 1, rows and columns multiples of 64, depth of 16.
struct ProductParams {
  const Half *x, *w;
  Half* y;
  int64_t x_stride, w_column, w_depth, y_stride;  // elements from row to row
  int64_t x_batch, w_batch, y_batch;
  int32_t rows, columns, depth;
};
constexpr int kProductTile = 64, kProductDepth = 16;

// Rows of softmax(scale x) in place; a workgroup to a row. columns: a multiple of 8, at most kMaxColumns.
constexpr int kMaxColumns = kThreads * 8 * 4;
struct SoftmaxParams {
  Half* x;
  int32_t columns;
  float scale;
};

// y [heads, width, rows] from x [rows, heads width].
struct TurnParams {
  const Half* x;
  Half* y;
  int32_t rows, heads, width;
};

// The product by matrix units: the library's tiles, by the instructions that all families have. The kernel
// takes GemmParams<Half>.
using MatrixCfg = ProductCfg<Half, TileShape{128, 128, 32, 4, 2, 2}>;

}  // namespace rocm_sd::analysis
