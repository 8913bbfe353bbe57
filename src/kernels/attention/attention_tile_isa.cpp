// The host's attention, compiled once per instruction set, and once more for CPUs that multiply bf16: there
// a cell is a pair of bf16 and a step of the depth is one vdpbf16ps, with sums in float and weights rounded
// to bf16.
// Problem   y = softmax(scale q k^T + mask) v for one tile of queries of one head
// Mapping   one thread per tile; per tile of keys: scores by strips of 4 (AVX-512: 8) rows x 3 vectors,
//           softmax, sums
// Traffic   packed keys and values from L2, one panel at a time in L1; scores stay in L2
// Numerics  float; scores in units of log2 e; e^x to 2e-7; the running maximum is exact, sums in order of
//           keys
// Limits    none
#include "kernels/attention/attention_tile.hpp"
#include "kernels/simd_math.hpp"

namespace rocm_sd::ROCM_SD_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kStripRows = 8;  // 24 accumulators, 3 panel vectors, 1 broadcast, of 32 registers
#else
constexpr int kStripRows = 4;  // 12 accumulators, 3 panel vectors, 1 broadcast, of 16 registers
#endif
#if defined(__AVX512BF16__)
constexpr int kPack = 2;
#else
constexpr int kPack = 1;
#endif
constexpr float kLog2E = 1.44269504088896341f;
constexpr float kHidden = -__builtin_inff();

// Vectors in the next panel when `vectors` remain: never 1 unless it is all there is, so that there are
// enough independent sums to hide the latency of an addition.
int panel_vectors(int64_t vectors) { return vectors == 4 ? 2 : vectors >= 3 ? 3 : static_cast<int>(vectors); }

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

int64_t cells(int64_t elements) { return (elements + kPack - 1) / kPack; }

// sum + a b, with b a vector of cells.
inline Vec multiply_add(Vec sum, float a, Vec b) {
#if defined(__AVX512BF16__)
  const VecBits pair = __builtin_bit_cast(uint32_t, a) - VecBits{};
  return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)pair, (__m512bh)b);
#else
  return sum + a * b;
#endif
}

// Weights are the left operand of the second product: cells of the row, written over the scores they came
// from, whose vector number i is never overtaken.
inline void store_weights(float* row, int64_t i, Vec p) {
#if defined(__AVX512BF16__)
  store(reinterpret_cast<uint16_t*>(row) + i * kLanes, p);
#else
  store(row + i * kLanes, p);
#endif
}

// One strip: c = factor a b, or c = row_scale c + a b. Depths and strides of a count cells.
struct Strip {
  const float* a;  // [kStripRows, depth], rows a_stride apart
  int64_t a_stride;
  const float* b;  // [depth, V vectors]
  int64_t depth;
  float* c;  // [kStripRows, V vectors], rows c_stride apart
  int64_t c_stride;
  const float* row_scale;  // null: the old c is ignored
  float factor;            // where it is
};

template <int V>
void multiply(const Strip& s) {
  Vec sum[kStripRows][V];
  if (s.row_scale) {
    for (int r = 0; r < kStripRows; ++r)
      for (int v = 0; v < V; ++v) sum[r][v] = load(s.c + r * s.c_stride + v * kLanes) * s.row_scale[r];
  } else {
    for (int r = 0; r < kStripRows; ++r)
      for (int v = 0; v < V; ++v) sum[r][v] = Vec{};
  }
  const float* a = s.a;
  const float* b = s.b;
  const int64_t stride = s.a_stride;
  for (int64_t k = 0; k < s.depth; ++k, b += V * kLanes, ++a) {
    Vec panel[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) panel[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kStripRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = multiply_add(sum[r][v], a[r * stride], panel[v]);
  }
  const float factor = s.row_scale ? 1.0f : s.factor;
  for (int r = 0; r < kStripRows; ++r)
    for (int v = 0; v < V; ++v) store(s.c + r * s.c_stride + v * kLanes, sum[r][v] * factor);
}

// All strips of `rows` rows by all panels of `vectors` columns; the panels of b follow each other.
void multiply_panels(Strip s, int64_t rows, int64_t vectors) {
  const Strip first = s;
  for (int64_t done = 0; done < vectors;) {
    const int width = panel_vectors(vectors - done);
    for (int64_t r = 0; r < rows; r += kStripRows) {
      s.a = first.a + r * s.a_stride;
      s.c = first.c + r * s.c_stride + done * kLanes;
      s.row_scale = first.row_scale ? first.row_scale + r : nullptr;
      switch (width) {
        case 3: multiply<3>(s); break;
        case 2: multiply<2>(s); break;
        default: multiply<1>(s);
      }
    }
    s.b += s.depth * width * kLanes;
    done += width;
  }
}

// The scratch of one tile of queries.
struct Scratch {
  float* q;          // [tile_queries, depth of head_dim]
  float* scores;     // [tile_queries, tile_keys], in units of log2 e; then the weights
  float* sums;       // [tile_queries, padded_dim]
  float* highest;    // [tile_queries]
  float* total;      // [tile_queries]
  float* row_scale;  // [tile_queries]
};
Scratch divide(float* data, const AttentionTiling& t) {
  Scratch s;
  s.q = data;
  s.scores = s.q + round_up(t.tile_queries * cells(t.head_dim), 16);
  s.sums = s.scores + t.tile_queries * t.tile_keys;
  s.highest = s.sums + t.tile_queries * t.padded_dim;
  s.total = s.highest + t.tile_queries;
  s.row_scale = s.total + t.tile_queries;
  return s;
}

// Elements as the cells' type.
#if defined(__AVX512BF16__)
using Element = uint16_t;
Element element(const AttentionRows& rows, int64_t i) { return static_cast<const uint16_t*>(rows.data)[i]; }
#else
using Element = float;
Element element(const AttentionRows& rows, int64_t i) {
  if (!rows.bf16) return static_cast<const float*>(rows.data)[i];
  const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(rows.data)[i]) << 16;
  return __builtin_bit_cast(float, bits);
}
#endif

void load_queries(const AttentionTileJob& job, int64_t rows, int64_t padded_rows, float* q) {
  const int64_t dim = job.tiling->head_dim, row = cells(dim) * kPack;
  Element* to = reinterpret_cast<Element*>(q);
  for (int64_t r = 0; r < padded_rows; ++r)
    for (int64_t d = 0; d < row; ++d)
      to[r * row + d] =
          r < rows && d < dim ? element(job.q, (job.first_query + r) * job.q.stride + d) : Element{};
}

// Adds the mask, hides future keys and those that only pad the last vector.
void hide(const AttentionTileJob& job, float* scores, int64_t query, int64_t first_key, int64_t keys) {
  if (job.mask) {
    const float* mask = job.mask + query * job.mask_query_stride + first_key;
    int64_t j = 0;
    for (; j + kLanes <= keys; j += kLanes) store(scores + j, load(scores + j) + load(mask + j) * kLog2E);
    for (; j < keys; ++j) scores[j] += mask[j] * kLog2E;
  }
  int64_t visible = keys;
  if (job.causal) visible = least(keys, query - first_key + 1 > 0 ? query - first_key + 1 : 0);
  for (int64_t j = visible; j < round_up(keys, kLanes); ++j) scores[j] = kHidden;
}

// Scores to weights in place, with the running maximum and total of the row; row_scale is what the old sums
// are multiplied with. `first`: there are no old sums.
void softmax_row(float* scores, int64_t vectors, bool first, float& highest, float& total, float& row_scale) {
  Vec most0 = splat(kHidden), most1 = most0;
  int64_t i = 0;
  for (; i + 2 <= vectors; i += 2) {
    most0 = vmax(most0, load(scores + i * kLanes));
    most1 = vmax(most1, load(scores + (i + 1) * kLanes));
  }
  if (i < vectors) most0 = vmax(most0, load(scores + i * kLanes));
  const float here = max_lanes(vmax(most0, most1));
  const float old = first ? kHidden : highest;
  highest = old > here ? old : here;
  const float base = highest == kHidden ? 0.0f : highest;
  row_scale = exp2_nonpositive(splat(old - base))[0];
  Vec sum0{}, sum1{}, sum2{}, sum3{};
  for (i = 0; i + 4 <= vectors; i += 4) {
    float* s = scores + i * kLanes;
    const Vec p0 = exp2_nonpositive(load(s) - base), p1 = exp2_nonpositive(load(s + kLanes) - base);
    const Vec p2 = exp2_nonpositive(load(s + 2 * kLanes) - base),
              p3 = exp2_nonpositive(load(s + 3 * kLanes) - base);
    store_weights(scores, i, p0);
    store_weights(scores, i + 1, p1);
    store_weights(scores, i + 2, p2);
    store_weights(scores, i + 3, p3);
    sum0 += p0;
    sum1 += p1;
    sum2 += p2;
    sum3 += p3;
  }
  for (; i < vectors; ++i) {
    const Vec p = exp2_nonpositive(load(scores + i * kLanes) - base);
    store_weights(scores, i, p);
    sum0 += p;
  }
  total = (first ? 0.0f : total * row_scale) + sum_lanes((sum0 + sum1) + (sum2 + sum3));
}

template <class T>
void write_row(T* y, const float* sums, float factor, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(y + i, load(sums + i) * factor);
  if (i < count) store_part(y + i, load(sums + i) * factor, count - i);
}

void attend(const AttentionTileJob& job) {
  const AttentionTiling& t = *job.tiling;
  const Scratch s = divide(job.scratch, t);
  const int64_t rows = least(t.tile_queries, t.queries - job.first_query);
  const int64_t padded_rows = round_up(rows, kStripRows), depth = cells(t.head_dim);
  load_queries(job, rows, padded_rows, s.q);
  const int64_t last_key = job.causal ? least(t.keys, job.first_query + rows) : t.keys;
  for (int64_t k = 0; k < last_key; k += t.tile_keys) {
    const int64_t keys = least(t.tile_keys, t.keys - k), vectors = round_up(keys, kLanes) / kLanes;
    multiply_panels({.a = s.q,
                     .a_stride = depth,
                     .b = job.keys + k * depth,
                     .depth = depth,
                     .c = s.scores,
                     .c_stride = t.tile_keys,
                     .row_scale = nullptr,
                     .factor = job.scale * kLog2E},
                    padded_rows, vectors);
    for (int64_t r = 0; r < padded_rows; ++r) {
      float* scores = s.scores + r * t.tile_keys;
      hide(job, scores, job.first_query + least(r, rows - 1), k, keys);
      softmax_row(scores, vectors, k == 0, s.highest[r], s.total[r], s.row_scale[r]);
    }
    multiply_panels({.a = s.scores,
                     .a_stride = t.tile_keys,
                     .b = job.values + cells(k) * t.padded_dim,
                     .depth = cells(keys),
                     .c = s.sums,
                     .c_stride = t.padded_dim,
                     .row_scale = k == 0 ? nullptr : s.row_scale,
                     .factor = 1},
                    padded_rows, t.padded_dim / kLanes);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const bool hidden = last_key == 0 || s.total[r] == 0;  // a NaN among the scores is in the total
    const float* sums = s.sums + r * t.padded_dim;
    const int64_t at = (job.first_query + r) * job.y_stride;
    if (hidden)
      for (int64_t d = 0; d < t.padded_dim; ++d) s.sums[r * t.padded_dim + d] = 0;
    const float factor = hidden ? 0.0f : 1.0f / s.total[r];
    if (job.q.bf16)
      write_row(static_cast<uint16_t*>(job.y) + at, sums, factor, t.head_dim);
    else
      write_row(static_cast<float*>(job.y) + at, sums, factor, t.head_dim);
  }
}

void pack_keys(const AttentionTiling& t, const AttentionRows& k, int64_t first_key, float* packed) {
  const int64_t vectors = round_up(least(t.tile_keys, t.keys - first_key), kLanes) / kLanes;
  const int64_t depth = cells(t.head_dim);
  Element* to = reinterpret_cast<Element*>(packed + first_key * depth);
  for (int64_t done = 0; done < vectors;) {
    const int width = panel_vectors(vectors - done) * kLanes;
    for (int64_t j = 0; j < width; ++j) {
      const int64_t key = first_key + done * kLanes + j;
      for (int64_t d = 0; d < depth * kPack; ++d)
        to[(d / kPack * width + j) * kPack + d % kPack] =
            key < t.keys && d < t.head_dim ? element(k, key * k.stride + d) : Element{};
    }
    to += width * depth * kPack;
    done += width / kLanes;
  }
}

void pack_values(const AttentionTiling& t, const AttentionRows& v, int64_t first_key, float* packed) {
  const int64_t keys = least(t.tile_keys, t.keys - first_key), vectors = t.padded_dim / kLanes;
  Element* to = reinterpret_cast<Element*>(packed + cells(first_key) * t.padded_dim);
  for (int64_t done = 0; done < vectors;) {
    const int width = panel_vectors(vectors - done) * kLanes;
    for (int64_t j = 0; j < cells(keys) * kPack; ++j)
      for (int64_t c = 0; c < width; ++c) {
        const int64_t d = done * kLanes + c;
        to[(j / kPack * width + c) * kPack + j % kPack] =
            j < keys && d < t.head_dim ? element(v, (first_key + j) * v.stride + d) : Element{};
      }
    to += width * cells(keys) * kPack;
    done += width / kLanes;
  }
}

}  // namespace

extern const AttentionKernels kAttentionKernels;
const AttentionKernels kAttentionKernels = {kLanes, kStripRows, kPack, pack_keys, pack_values, attend};

}  // namespace rocm_sd::ROCM_SD_ISA
