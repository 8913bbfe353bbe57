// Kernels with one fault each, beside the same work without it (docs/lab/performance-analysis.md); no part of
// the library.
// Problem   reads with gaps between lanes, sums of rows, transposes, LDS reads that meet in a bank, a product and
//           an attention by hand
// Mapping   256 threads; params.hpp says which lane has what
// Traffic   that is what they differ in
// Numerics  float; 16-bit results are rounded once       Limits  extents as params.hpp says
#include "params.hpp"

#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/block.hpp"
#include "composable_kernels/pack.hpp"

namespace rocm_sd::analysis {

template <int kWidth>
ROCM_SD_DEVICE void read_body(const ReadParams& p) {
  const int64_t first = static_cast<int64_t>(GpuArch::group_x()) * p.rounds * kThreads + GpuArch::thread();
  float sum = 0;
  for (int r = 0; r < p.rounds; r += kAhead) {
    Pack<float, kWidth> got[kAhead];
    ROCM_SD_UNROLL
    for (int j = 0; j < kAhead; ++j)
      got[j] = load_pack<kWidth>(p.x + (first + static_cast<int64_t>(r + j) * kThreads) * p.stride * kWidth);
    ROCM_SD_UNROLL
    for (int j = 0; j < kAhead; ++j) ROCM_SD_UNROLL
    for (int i = 0; i < kWidth; ++i) sum += got[j].x[i];
  }
  p.y[static_cast<int64_t>(GpuArch::group_x()) * kThreads + GpuArch::thread()] = sum;
}
ROCM_SD_KERNEL(analysis_read_4, kThreads, 1, ReadParams) { read_body<1>(p); }
ROCM_SD_KERNEL(analysis_read_8, kThreads, 1, ReadParams) { read_body<2>(p); }
ROCM_SD_KERNEL(analysis_read_16, kThreads, 1, ReadParams) { read_body<4>(p); }

// A lane walks a row of its own: neighbouring lanes are a whole row apart.
ROCM_SD_KERNEL(analysis_rows_by_lane, kThreads, 1, RowParams) {
  const int64_t row = static_cast<int64_t>(GpuArch::group_x()) * kThreads + GpuArch::thread();
  const float* x = p.x + row * p.columns;
  float sum = 0;
  for (int c = 0; c < p.columns; c += kAhead) {
    float got[kAhead];
    ROCM_SD_UNROLL
    for (int j = 0; j < kAhead; ++j) got[j] = x[c + j];
    ROCM_SD_UNROLL
    for (int j = 0; j < kAhead; ++j) sum += got[j];
  }
  p.y[row] = sum;
}

// A wave walks a row: neighbouring lanes read neighbours.
ROCM_SD_KERNEL(analysis_rows_by_wave, kThreads, 1, RowParams) {
  constexpr int kWaves = kThreads / GpuArch::lanes;
  const int64_t row = static_cast<int64_t>(GpuArch::group_x()) * kWaves +
                      GpuArch::uniform(GpuArch::thread() / GpuArch::lanes);
  const float* x = p.x + row * p.columns + GpuArch::lane();
  float sum = 0;
  for (int c = 0; c < p.columns; c += kAhead * GpuArch::lanes) {
    float got[kAhead];
    ROCM_SD_UNROLL
    for (int j = 0; j < kAhead; ++j) got[j] = x[c + j * GpuArch::lanes];
    ROCM_SD_UNROLL
    for (int j = 0; j < kAhead; ++j) sum += got[j];
  }
  sum = GpuArch::wave_sum(sum);
  if (GpuArch::lane() == 0) p.y[row] = sum;
}

// Tile [kTile][kTile] of the grid's line of tiles, lane (column, first row) of it.
struct TilePlace {
  int64_t row, column;  // of the tile
  int x, y;             // of the thread
};
ROCM_SD_DEVICE TilePlace tile_place(const TransposeParams& p) {
  const int tiles = p.columns / kTile, group = static_cast<int>(GpuArch::group_x());
  return {static_cast<int64_t>(group / tiles) * kTile, static_cast<int64_t>(group % tiles) * kTile,
          GpuArch::thread() % kTile, GpuArch::thread() / kTile};
}

ROCM_SD_KERNEL(analysis_transpose_direct, kThreads, 1, TransposeParams) {
  const TilePlace at = tile_place(p);
  ROCM_SD_UNROLL
  for (int y = 0; y < kTile; y += kThreads / kTile) {
    const int64_t row = at.row + at.y + y, column = at.column + at.x;
    p.y[column * p.rows + row] = p.x[row * p.columns + column];
  }
}

template <int kPad>
ROCM_SD_DEVICE void transpose_by_lds(const TransposeParams& p) {
  constexpr int kLine = kTile + kPad;
  auto* tile = reinterpret_cast<float*>(GpuArch::lds<kTile * kLine * 4>());
  const TilePlace at = tile_place(p);
  ROCM_SD_UNROLL
  for (int y = 0; y < kTile; y += kThreads / kTile)
    tile[(at.y + y) * kLine + at.x] = p.x[(at.row + at.y + y) * p.columns + at.column + at.x];
  GpuArch::barrier();
  ROCM_SD_UNROLL
  for (int y = 0; y < kTile; y += kThreads / kTile)
    p.y[(at.column + at.y + y) * p.rows + at.row + at.x] = tile[at.x * kLine + at.y + y];
}
ROCM_SD_KERNEL(analysis_transpose_lds, kThreads, 1, TransposeParams) { transpose_by_lds<0>(p); }
ROCM_SD_KERNEL(analysis_transpose_padded, kThreads, 1, TransposeParams) { transpose_by_lds<1>(p); }

ROCM_SD_KERNEL(analysis_lds, kThreads, 1, LdsParams) {
  constexpr int kWords = kLdsWords + kAhead * kLdsStep;
  auto* lds = reinterpret_cast<float*>(GpuArch::lds<kWords * 4>());
  for (int i = GpuArch::thread(); i < kWords; i += kThreads) lds[i] = static_cast<float>(i);
  GpuArch::barrier();
  int at = GpuArch::lane() * p.stride % kLdsWords;
  float sum = 0;
  for (int r = 0; r < p.rounds; ++r) {
    ROCM_SD_UNROLL
    for (int j = 0; j < kAhead; ++j) sum += lds[at + j * kLdsStep];
    at = (at + kAhead * kLdsStep) % kLdsWords;
  }
  p.y[static_cast<int64_t>(GpuArch::group_x()) * kThreads + GpuArch::thread()] = sum;
}

// A lane to an element of the result; every operand from memory, every time.
ROCM_SD_KERNEL(analysis_product_naive, kThreads, 1, ProductParams) {
  const int64_t element = static_cast<int64_t>(GpuArch::group_x()) * kThreads + GpuArch::thread();
  const int64_t row = element / p.columns, column = element % p.columns, batch = GpuArch::group_y();
  if (row >= p.rows) return;
  const Half* x = p.x + batch * p.x_batch + row * p.x_stride;
  const Half* w = p.w + batch * p.w_batch + column * p.w_column;
  float sum = 0;
  for (int k = 0; k < p.depth; ++k) sum += to_float(x[k]) * to_float(w[k * p.w_depth]);
  store(p.y[batch * p.y_batch + row * p.y_stride + column], sum);
}

// Tiles in LDS and 4 x 4 results to a lane, by the vector units.
ROCM_SD_KERNEL(analysis_product_tiled, kThreads, 1, ProductParams) {
  constexpr int kLine =
      kProductTile + 4;  // rows of one depth; 16 bytes more, so that stores spread over banks
  auto* xs = reinterpret_cast<float*>(GpuArch::lds<2 * kProductDepth * kLine * 4>());
  float* ws = xs + kProductDepth * kLine;
  const int tiles = p.columns / kProductTile, group = static_cast<int>(GpuArch::group_x());
  const int64_t row = static_cast<int64_t>(group / tiles) * kProductTile,
                column = static_cast<int64_t>(group % tiles) * kProductTile;
  const int t = GpuArch::thread(), line = t / 4, piece = t % 4 * 4, tx = t % 16 * 4, ty = t / 16 * 4;
  float sums[4][4] = {};
  for (int k = 0; k < p.depth; k += kProductDepth) {
    const auto x = load_pack<4>(p.x + (row + line) * p.x_stride + k + piece);
    const auto w = load_pack<4>(p.w + (column + line) * p.w_column + k + piece);
    GpuArch::barrier();
    ROCM_SD_UNROLL
    for (int j = 0; j < 4; ++j) {
      xs[(piece + j) * kLine + line] = to_float(x.x[j]);
      ws[(piece + j) * kLine + line] = to_float(w.x[j]);
    }
    GpuArch::barrier();
    ROCM_SD_UNROLL
    for (int d = 0; d < kProductDepth; ++d) {
      const auto a = load_pack<4>(xs + d * kLine + ty), b = load_pack<4>(ws + d * kLine + tx);
      ROCM_SD_UNROLL
      for (int i = 0; i < 4; ++i) ROCM_SD_UNROLL
      for (int j = 0; j < 4; ++j) sums[i][j] += a.x[i] * b.x[j];
    }
  }
  ROCM_SD_UNROLL
  for (int i = 0; i < 4; ++i) {
    Pack<Half, 4> out;
    store_all(out, sums[i]);
    store_pack(p.y + (row + ty + i) * p.y_stride + column + tx, out);
  }
}

ROCM_SD_KERNEL(analysis_product_matrix, MatrixCfg::kWaves* GpuArch::lanes, 1, GemmParams<Half>) {
  gemm_body<GpuArch, MatrixCfg, false>(p, static_cast<int>(GpuArch::group_x()),
                                       static_cast<int>(GpuArch::group_y()),
                                       GpuArch::lds<MatrixCfg::kLdsBytes>());
}

ROCM_SD_KERNEL(analysis_softmax, kThreads, 1, SoftmaxParams) {
  constexpr int kWaves = kThreads / GpuArch::lanes, kPieces = kMaxColumns / kThreads / 8;
  auto* lds = reinterpret_cast<float*>(GpuArch::lds<2 * kWaves * 4>());
  Half* row = p.x + static_cast<int64_t>(GpuArch::group_x()) * p.columns;
  const Block<GpuArch> block{1, kWaves};
  const int wave = block.wave();
  float v[kPieces][8], highest = -3.0e38f;
  ROCM_SD_UNROLL
  for (int j = 0; j < kPieces; ++j) {
    const int at = (j * kThreads + GpuArch::thread()) * 8;
    if (at >= p.columns) continue;
    const auto got = load_pack<8>(row + at);
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i) highest = GpuArch::max(highest, v[j][i] = p.scale * to_float(got.x[i]));
  }
  highest = GpuArch::wave_max(highest);
  if (GpuArch::lane() == 0) lds[kWaves + wave] = highest;
  GpuArch::barrier();
  for (int w = 0; w < kWaves; ++w) highest = GpuArch::max(highest, lds[kWaves + w]);
  float sum = 0;
  ROCM_SD_UNROLL
  for (int j = 0; j < kPieces; ++j) {
    if ((j * kThreads + GpuArch::thread()) * 8 >= p.columns) continue;
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i) sum += v[j][i] = GpuArch::exp(v[j][i] - highest);
  }
  const float factor = GpuArch::reciprocal(group_sum(block, sum, lds));
  ROCM_SD_UNROLL
  for (int j = 0; j < kPieces; ++j) {
    const int at = (j * kThreads + GpuArch::thread()) * 8;
    if (at >= p.columns) continue;
    Pack<Half, 8> out;
    ROCM_SD_UNROLL
    for (int i = 0; i < 8; ++i) v[j][i] *= factor;
    store_all(out, v[j]);
    store_pack(row + at, out);
  }
}

ROCM_SD_KERNEL(analysis_turn, kThreads, 1, TurnParams) {
  const int64_t element = static_cast<int64_t>(GpuArch::group_x()) * kThreads + GpuArch::thread();
  const int64_t line = element / p.rows, row = element % p.rows;  // line: head and element of it
  if (line < static_cast<int64_t>(p.heads) * p.width) p.y[element] = p.x[row * p.heads * p.width + line];
}

}  // namespace rocm_sd::analysis
