// The softmax between attention's two matrix products, compiled once per instruction set, and once more for
// CPUs that round to bf16 in hardware.
// Problem   weights = e^(scale s + mask - highest) of one tile, with the running maximum and total of each
//           row
// Mapping   one thread per tile, row by row: the maximum, then the weights while the row is in L1
// Traffic   the scores once from L2; the weights once to it
// Numerics  float; scores in units of log2 e; 2^x to 2e-7, or to 1e-4 where the weights are then rounded to
//           bf16 (2e-3); the running maximum is exact; totals are of the weights before that rounding
// Limits    none
#include "kernels/attention/attention_softmax.hpp"
#include "kernels/simd_math.hpp"

namespace rocm_sd::ROCM_SD_ISA {
namespace {

constexpr float kLog2E = 1.44269504088896341f;
constexpr float kHidden = -__builtin_inff();

// 2^x for weights that are stored as T.
inline Vec weight_of(const float*, Vec x) { return exp2_nonpositive(x); }
inline Vec weight_of(const uint16_t*, Vec x) { return exp2_nonpositive_coarse(x); }

// Writes scaled and masked scores over one row, so that only the factor 1 remains; hides future keys and
// those that only pad.
float prepare_row(const SoftenJob& job, int64_t row, float* scores) {
  const float factor = job.scale * kLog2E;
  float rest = factor;
  if (job.mask || !(factor > 0)) {
    const int64_t mask_row = row < job.masked_rows ? row : job.masked_rows - 1;
    const float* mask = job.mask ? job.mask + mask_row * job.mask_stride : nullptr;
    for (int64_t j = 0; j < job.keys; ++j) scores[j] = scores[j] * factor + (mask ? mask[j] * kLog2E : 0.0f);
    rest = 1;
  }
  int64_t visible = job.keys;
  if (job.causal) {
    const int64_t past = job.first_query + row - job.first_key + 1;
    visible = past < 0 ? 0 : past < visible ? past : visible;
  }
  for (int64_t j = visible; j < job.padded_keys; ++j) scores[j] = kHidden;
  return rest;
}

template <class T>
void softmax_row(const SoftenJob& job, int64_t row) {
  float* scores = job.scores + row * job.padded_keys;
  T* weights = static_cast<T*>(job.weights) + row * job.padded_keys;
  const float factor = prepare_row(job, row, scores);
  const int64_t keys = job.padded_keys;
  Vec most[4] = {splat(kHidden), splat(kHidden), splat(kHidden), splat(kHidden)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= keys; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) most[j] = vmax(most[j], load(scores + i + j * kLanes));
  for (; i < keys; i += kLanes) most[0] = vmax(most[0], load(scores + i));
  const float here = max_lanes(vmax(vmax(most[0], most[1]), vmax(most[2], most[3]))) * factor;
  const float old = job.first ? kHidden : job.highest[row];
  const float highest = old > here ? old : here;
  const float base = highest == kHidden ? 0.0f : highest;
  Vec sum[4] = {};
  for (i = 0; i + 4 * kLanes <= keys; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) {
      const int64_t at = i + j * kLanes;
      const Vec p = weight_of(weights, load(scores + at) * factor - base);
      store(weights + at, p);
      sum[j] += p;
    }
  for (; i < keys; i += kLanes) {
    const Vec p = weight_of(weights, load(scores + i) * factor - base);
    store(weights + i, p);
    sum[0] += p;
  }
  const float total = sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
  job.highest[row] = highest;
  if (job.first) {
    job.total[row] = total;
    return;
  }
  const float scale = exp2_nonpositive(splat(old - base))[0];
  job.total[row] = job.total[row] * scale + total;
  if (scale == 1) return;
  float* sums = job.sums + row * job.head_dim;
  for (int64_t d = 0; d < job.head_dim; ++d) sums[d] *= scale;
}

void softmax(const SoftenJob& job) {
  for (int64_t row = 0; row < job.rows; ++row)
    job.weights_bf16 ? softmax_row<uint16_t>(job, row) : softmax_row<float>(job, row);
}

template <class T>
void write_row(const FinishJob& job, int64_t row, T* y) {
  const float* sums = job.sums + row * job.head_dim;
  if (job.total[row] == 0) {  // every key was hidden; a NaN among the scores is in the total
    for (int64_t d = 0; d < job.head_dim; ++d) y[d] = T{};
    return;
  }
  const float factor = 1.0f / job.total[row];
  int64_t d = 0;
  for (; d + kLanes <= job.head_dim; d += kLanes) store(y + d, load(sums + d) * factor);
  const int64_t rest = job.head_dim - d;
  if (rest > 0) store_part(y + d, load_part(sums + d, rest) * factor, rest);
}

void finish(const FinishJob& job) {
  for (int64_t row = 0; row < job.rows; ++row)
    if (job.y_bf16)
      write_row(job, row, static_cast<uint16_t*>(job.y) + row * job.y_stride);
    else
      write_row(job, row, static_cast<float*>(job.y) + row * job.y_stride);
}

// Elements as the products' type; never bf16 from f32.
inline void convert(const float* from, float* to) { *to = *from; }
inline void convert(const uint16_t* from, uint16_t* to) { *to = *from; }
inline void convert(const uint16_t* from, float* to) {
  *to = __builtin_bit_cast(float, static_cast<uint32_t>(*from) << 16);
}

template <class From, class To>
void load_typed(const HeadRows& from, int64_t rows, int64_t cols, int64_t padded_rows, int64_t padded_cols,
                To* to) {
  for (int64_t i = 0; i < padded_rows; ++i, to += padded_cols) {
    int64_t j = 0;
    if (i < rows) {
      const From* row = static_cast<const From*>(from.data) + i * from.stride;
      for (; j < cols; ++j) convert(row + j, to + j);
    }
    for (; j < padded_cols; ++j) to[j] = To{};
  }
}

template <class From, class To>
void scatter_typed(const HeadRows& from, int64_t rows, int64_t cols, const int64_t* row_places,
                   const int64_t* col_places, To* to) {
  for (int64_t i = 0; i < rows; ++i) {
    const From* row = static_cast<const From*>(from.data) + i * from.stride;
    To* place = to + row_places[i];
    for (int64_t j = 0; j < cols; ++j) convert(row + j, place + col_places[j]);
  }
}

void load_rows(const HeadRows& from, int64_t rows, int64_t cols, int64_t padded_rows, int64_t padded_cols,
               void* to, bool to_bf16) {
  if (!from.bf16)
    load_typed<float>(from, rows, cols, padded_rows, padded_cols, static_cast<float*>(to));
  else if (to_bf16)
    load_typed<uint16_t>(from, rows, cols, padded_rows, padded_cols, static_cast<uint16_t*>(to));
  else
    load_typed<uint16_t>(from, rows, cols, padded_rows, padded_cols, static_cast<float*>(to));
}

void scatter(const HeadRows& from, int64_t rows, int64_t cols, const int64_t* row_places,
             const int64_t* col_places, void* to, bool to_bf16) {
  if (!from.bf16)
    scatter_typed<float>(from, rows, cols, row_places, col_places, static_cast<float*>(to));
  else if (to_bf16)
    scatter_typed<uint16_t>(from, rows, cols, row_places, col_places, static_cast<uint16_t*>(to));
  else
    scatter_typed<uint16_t>(from, rows, cols, row_places, col_places, static_cast<float*>(to));
}

}  // namespace

extern const SoftenKernels kSoftenKernels;
const SoftenKernels kSoftenKernels = {load_rows, scatter, softmax, finish};

}  // namespace rocm_sd::ROCM_SD_ISA
