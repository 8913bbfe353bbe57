// The host's GEMM inner loops, compiled once per instruction set.
// Problem   tile[6,columns] += rows[6,depth] * panel[depth,columns]; then out = act(tile + bias + residual)
// Mapping   6 x V accumulators in registers; per depth step V loads of the panel and 6 broadcasts
// Traffic   the panel from L1 or L2, shared by all strips; rows from L1 or L2; tiles once per depth block
// Numerics  float; one fused multiply-add per product, in order of depth
// Limits    every row pointer is readable for its segment; rows beyond the last point at readable memory
#include "kernels/gemm/tile_kernel.hpp"
#include "kernels/simd_math.hpp"

#include <cstddef>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace rocm_sd::ROCM_SD_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kWideVectors = 4;  // 24 accumulators, 4 panel vectors, of 32 registers
#else
constexpr int kWideVectors = 2;  // 12 accumulators, 2 panel vectors, 1 broadcast, of 16 registers
#endif

typedef uint32_t Pair __attribute__((aligned(2), may_alias));  // two bf16

template <int V>
void multiply(const PanelProduct& p) {
  constexpr int kColumns = V * kLanes;
  for (int strip = 0; strip < p.strips; ++strip) {
    float* tile = p.tiles + int64_t{strip} * kStripRows * kColumns;
    Vec sum[kStripRows][V];
    for (int r = 0; r < kStripRows; ++r)
      for (int v = 0; v < V; ++v) sum[r][v] = p.accumulate ? load(tile + r * kColumns + v * kLanes) : Vec{};
    const auto* panel = static_cast<const float*>(p.panel);
    for (int s = 0; s < p.segments; ++s) {
      const auto* row =
          reinterpret_cast<const float* const*>(p.pointers + s * p.pointer_stride + strip * kStripRows);
      const float *x0 = row[0], *x1 = row[1], *x2 = row[2], *x3 = row[3], *x4 = row[4], *x5 = row[5];
      const int64_t length = p.segment_length[s];
      for (int64_t k = 0; k < length; ++k, panel += kColumns) {
        Vec w[V];
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) w[v] = load(panel + v * kLanes);
        const float* const rows[kStripRows] = {x0, x1, x2, x3, x4, x5};
#pragma GCC unroll 8
        for (int r = 0; r < kStripRows; ++r)
#pragma GCC unroll 8
          for (int v = 0; v < V; ++v) sum[r][v] += rows[r][k] * w[v];
      }
    }
    for (int r = 0; r < kStripRows; ++r)
      for (int v = 0; v < V; ++v) store(tile + r * kColumns + v * kLanes, sum[r][v]);
  }
}

// Pairs without an instruction for them: both halves widened, two fused multiply-adds.
template <int V>
void multiply_pairs_widened(const PanelProduct& p) {
  constexpr int kColumns = V * kLanes;
  for (int strip = 0; strip < p.strips; ++strip) {
    float* tile = p.tiles + int64_t{strip} * kStripRows * kColumns;
    Vec sum[kStripRows][V];
    for (int r = 0; r < kStripRows; ++r)
      for (int v = 0; v < V; ++v) sum[r][v] = p.accumulate ? load(tile + r * kColumns + v * kLanes) : Vec{};
    const auto* panel = static_cast<const float*>(p.panel);
    for (int s = 0; s < p.segments; ++s) {
      const void* const* rows = p.pointers + s * p.pointer_stride + strip * kStripRows;
      for (int64_t k = 0; k < p.segment_length[s] / 2; ++k, panel += kColumns)
        for (int r = 0; r < kStripRows; ++r) {
          const Pair pair = static_cast<const Pair*>(rows[r])[k];
          const VecBits both = pair - VecBits{};
          for (int v = 0; v < V; ++v) {
            const VecBits w = (VecBits)load(panel + v * kLanes);
            sum[r][v] += (Vec)(both << 16) * (Vec)(w << 16);
            sum[r][v] += (Vec)(both & 0xffff0000u) * (Vec)(w & 0xffff0000u);
          }
        }
    }
    for (int r = 0; r < kStripRows; ++r)
      for (int v = 0; v < V; ++v) store(tile + r * kColumns + v * kLanes, sum[r][v]);
  }
}

#if defined(__AVX512F__)
// vdpbf16ps adds both products of a pair to the column's sum.
template <int V>
__attribute__((target("avx512bf16"))) void multiply_pairs(const PanelProduct& p) {
  constexpr int kColumns = V * kLanes;
  for (int strip = 0; strip < p.strips; ++strip) {
    float* tile = p.tiles + int64_t{strip} * kStripRows * kColumns;
    __m512 sum[kStripRows][V];
    for (int r = 0; r < kStripRows; ++r)
      for (int v = 0; v < V; ++v)
        sum[r][v] = p.accumulate ? _mm512_loadu_ps(tile + r * kColumns + v * kLanes) : _mm512_setzero_ps();
    const auto* panel = static_cast<const char*>(p.panel);
    for (int s = 0; s < p.segments; ++s) {
      const auto* row =
          reinterpret_cast<const Pair* const*>(p.pointers + s * p.pointer_stride + strip * kStripRows);
      const Pair *x0 = row[0], *x1 = row[1], *x2 = row[2], *x3 = row[3], *x4 = row[4], *x5 = row[5];
      const int64_t pairs = p.segment_length[s] / 2;
      for (int64_t k = 0; k < pairs; ++k, panel += 4 * kColumns) {
        __m512bh w[V];
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) w[v] = (__m512bh)_mm512_loadu_si512(panel + v * 4 * kLanes);
        const Pair* const rows[kStripRows] = {x0, x1, x2, x3, x4, x5};
#pragma GCC unroll 8
        for (int r = 0; r < kStripRows; ++r) {
          const auto x = (__m512bh)_mm512_set1_epi32(static_cast<int>(rows[r][k]));
#pragma GCC unroll 8
          for (int v = 0; v < V; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, w[v]);
        }
      }
    }
    for (int r = 0; r < kStripRows; ++r)
      for (int v = 0; v < V; ++v) _mm512_storeu_ps(tile + r * kColumns + v * kLanes, sum[r][v]);
  }
}
template <int V>
void multiply_paired(const PanelProduct& p) {
  static const bool has_instruction = __builtin_cpu_supports("avx512bf16");
  has_instruction ? multiply_pairs<V>(p) : multiply_pairs_widened<V>(p);
}
#else
template <int V>
void multiply_paired(const PanelProduct& p) {
  multiply_pairs_widened<V>(p);
}
#endif

Vec activated(Vec x, int activation) {  // numbers of enum Activation; checked where they are filled in
  switch (activation) {
    case 1: return silu(x);
    case 2: return gelu(x);
    case 3: return quick_gelu(x);
    case 4: return x < 0.0f ? Vec{} : x;
    default: return x;
  }
}

// kLanes outputs at element `at` of out and residual.
void finish_vector(const PanelEpilogue& p, const float* tile, const float* bias, int column, int64_t at) {
  Vec y = load(tile + column) + load(bias + column);
  if (p.gated) y *= gelu(load(tile + column + p.columns / 2) + load(bias + column + p.columns / 2));
  if (p.residual)
    y += p.bf16 ? load(static_cast<const uint16_t*>(p.residual) + at)
                : load(static_cast<const float*>(p.residual) + at);
  y = activated(y, p.activation);
  if (p.bf16)
    store(static_cast<uint16_t*>(p.out) + at, y);
  else
    store(static_cast<float*>(p.out) + at, y);
}

// The last `count` < kLanes outputs of a row: through memory that is a full vector long.
void finish_rest(const PanelEpilogue& p, const float* tile, const float* bias, int column, int count,
                 int64_t at) {
  const int size = p.bf16 ? 2 : 4;
  alignas(64) char residual[4 * kLanes] = {}, out[4 * kLanes];
  if (p.residual) __builtin_memcpy(residual, static_cast<const char*>(p.residual) + at * size, count * size);
  PanelEpilogue rest = p;
  rest.residual = p.residual ? residual : nullptr;
  rest.out = out;
  finish_vector(rest, tile, bias, column, 0);
  __builtin_memcpy(static_cast<char*>(p.out) + at * size, out, count * size);
}

void finish(const PanelEpilogue& p) {
  for (int r = 0; r < p.rows; ++r) {
    const float* tile = p.tiles + int64_t{r} * p.columns;
    int column = 0;
    for (; column + kLanes <= p.valid_columns; column += kLanes)
      finish_vector(p, tile, p.bias[r], column, p.out_offset[r] + column);
    if (column < p.valid_columns)
      finish_rest(p, tile, p.bias[r], column, p.valid_columns - column, p.out_offset[r] + column);
  }
}

void bf16_to_float(const uint16_t* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
  for (; i < count; ++i) {
    const uint32_t bits = uint32_t{from[i]} << 16;
    __builtin_memcpy(to + i, &bits, 4);
  }
}

// The exponent's bias changes by a product with 2^112, which is exact for subnormals too; what has the
// highest exponent is infinite or no number.
Vec widened_f16(VecBits half) {
  const Vec value = (Vec)((half & 0x7fffu) << 13) * 0x1p112f;
  const VecBits special = (half & 0x7c00u) == 0x7c00u ? VecBits{} + 0x7f800000u : VecBits{};
  return (Vec)((VecBits)value | special | ((half & 0x8000u) << 16));
}
void f16_to_float(const uint16_t* from, float* to, int64_t count) {
  const auto widen = [](const uint16_t* p) { return widened_f16((VecBits)load(p) >> 16); };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, widen(from + i));
  if (i == count) return;
  uint16_t rest[kLanes] = {};
  float wide[kLanes];
  __builtin_memcpy(rest, from + i, static_cast<size_t>(count - i) * sizeof(uint16_t));
  store(wide, widen(rest));
  __builtin_memcpy(to + i, wide, static_cast<size_t>(count - i) * sizeof(float));
}

}  // namespace

extern const TileKernels kTileKernels = {
    .wide = kWideVectors * kLanes,
    .narrow = kLanes,
    .multiply_wide = multiply<kWideVectors>,
    .multiply_narrow = multiply<1>,
    .multiply_wide_paired = multiply_paired<kWideVectors>,
    .multiply_narrow_paired = multiply_paired<1>,
    .finish = finish,
    .bf16_to_float = bf16_to_float,
    .f16_to_float = f16_to_float,
};

}  // namespace rocm_sd::ROCM_SD_ISA
