// attention with both matrix products by oneDNN: bf16 where the CPU multiplies it in hardware (AMX,
// AVX512-BF16), else f32.
// Problem   y = softmax(scale q k^T + mask) v for every head
// Mapping   one thread per tile of queries of one head; per tile of keys: scores, softmax, weighted sums
// Traffic   keys and values are packed once per head into oneDNN's layout; scores and weights stay in L2
// Numerics  sums in float; weights rounded to bf16 where the products are bf16
// Limits    the tiles are padded: queries to 16, keys and channels to 32
#include <omp.h>

#include <algorithm>
#include <cstring>

#include "kernels/attention/attention_impl.hpp"
#include "kernels/attention/attention_softmax.hpp"
#include "kernels/host_table.hpp"
#include "kernels/onednn.hpp"
#include "runtime/stop_request.hpp"

namespace rocm_sd {
namespace {

const SoftenKernels& kernels() {
#if defined(__x86_64__)
  if (host_has_bf16()) return isa_v4_bf16::kSoftenKernels;
#endif
  return ROCM_SD_HOST_TABLE(kSoftenKernels);
}

int64_t divide_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
int64_t round_up(int64_t n, int64_t unit) { return divide_up(n, unit) * unit; }

// Cuts n into tiles of at most `most`, as even as whole units allow.
int64_t even_tile(int64_t n, int64_t most, int64_t unit) {
  return std::max(round_up(divide_up(n, std::max<int64_t>(divide_up(n, most), 1)), unit), unit);
}

// How the problem is cut, the two products of one tile, and the memory.
struct Workspace {
  DType type = DType::kF32;  // of the products' operands
  int64_t tile_queries = 0, tile_keys = 0, key_tiles = 0, padded_dim = 0;
  std::shared_ptr<const onednn::Product> scores, sums;
  onednn::WeightPlaces key_places, value_places;
  int64_t key_bytes = 0, value_bytes = 0;  // of one packed tile
  int threads = 1;
  char *keys = nullptr, *values = nullptr;  // [batch * heads, key_tiles] packed tiles
  char* scratch = nullptr;                  // [threads] of scratch_bytes
  size_t scratch_bytes = 0;
};

// The parts of one thread's scratch, each on a cache line of its own.
struct Scratch {
  char* q = nullptr;           // [tile_queries, padded_dim] of type
  float* scores = nullptr;     // [tile_queries, tile_keys]
  char* weights = nullptr;     // [tile_queries, tile_keys] of type
  float* sums = nullptr;       // [tile_queries, head_dim]
  float* highest = nullptr;    // [tile_queries]
  float* total = nullptr;      // [tile_queries]
  char* scratchpad = nullptr;  // oneDNN's
  size_t bytes = 0;

  Scratch(char* data, const AttentionProblem& p, const Workspace& w) {
    const auto take = [&](int64_t bytes_of_part) {
      char* part = data + bytes;
      bytes += static_cast<size_t>(round_up(bytes_of_part, 64));
      return part;
    };
    const auto size = static_cast<int64_t>(dtype_size(w.type)), rows = w.tile_queries;
    q = take(rows * w.padded_dim * size);
    scores = reinterpret_cast<float*>(take(rows * w.tile_keys * 4));
    weights = take(rows * w.tile_keys * size);
    sums = reinterpret_cast<float*>(take(rows * p.head_dim * 4));
    highest = reinterpret_cast<float*>(take(rows * 4));
    total = reinterpret_cast<float*>(take(rows * 4));
    scratchpad =
        take(static_cast<int64_t>(std::max(w.scores->scratchpad_bytes(), w.sums->scratchpad_bytes())));
  }
};

Workspace workspace_of(const AttentionProblem& p) {
  Workspace w;
  w.type = p.dtype == DType::kBF16 && !onednn::refuses(DType::kBF16) ? DType::kBF16 : DType::kF32;
  w.tile_queries = even_tile(p.queries, 128, 16);
  w.tile_keys = even_tile(p.keys, p.head_dim > 256 ? 512 : 1024, 32);
  w.key_tiles = divide_up(p.keys, w.tile_keys);
  w.padded_dim = round_up(p.head_dim, 32);
  w.threads = host_threads();
  const onednn::ProductSpec scores{.height = w.tile_queries,
                                   .channels = w.padded_dim,
                                   .out_channels = w.tile_keys,
                                   .threads = 1,
                                   .dtype = w.type};
  const onednn::ProductSpec sums{.height = w.tile_queries,
                                 .channels = w.tile_keys,
                                 .out_channels = p.head_dim,
                                 .threads = 1,
                                 .dtype = w.type,
                                 .accumulate = true};
  w.scores = onednn::product(scores);
  w.sums = onednn::product(sums);
  w.key_places = w.scores->weight_places();
  w.value_places = w.sums->weight_places();
  w.key_bytes = round_up(static_cast<int64_t>(w.key_places.bytes), 64);
  w.value_bytes = round_up(static_cast<int64_t>(w.value_places.bytes), 64);
  w.scratch_bytes = Scratch(nullptr, p, w).bytes;
  return w;
}

// Rows from `first` on of one head.
HeadRows rows_of(const AttentionProblem& p, const AttentionProblem::Rows& rows, int64_t head, int64_t first) {
  const int64_t at = head / p.heads * rows.image + head % p.heads * p.head_dim + first * rows.row;
  return {static_cast<const char*>(rows.data) + at * static_cast<int64_t>(dtype_size(p.dtype)), rows.row,
          p.dtype == DType::kBF16};
}

void pack(const AttentionProblem& p, const Workspace& w) {
  const bool bf16 = w.type == DType::kBF16;
  const onednn::WeightPlaces &k = w.key_places, &v = w.value_places;
#pragma omp parallel for schedule(static) num_threads(w.threads)
  for (int64_t i = 0; i < 2 * p.batch * p.heads * w.key_tiles; ++i) {
    const int64_t tile = i / 2, head = tile / w.key_tiles, first = tile % w.key_tiles * w.tile_keys;
    const int64_t keys = std::min(w.tile_keys, p.keys - first);
    if (i % 2 == 0) {  // a key is a column of the first product's weights
      char* to = w.keys + tile * w.key_bytes;
      std::memset(to, 0, k.bytes);
      kernels().scatter(rows_of(p, p.k, head, first), keys, p.head_dim, k.columns.data(), k.rows.data(), to,
                        bf16);
    } else {
      char* to = w.values + tile * w.value_bytes;
      std::memset(to, 0, v.bytes);
      kernels().scatter(rows_of(p, p.v, head, first), keys, p.head_dim, v.rows.data(), v.columns.data(), to,
                        bf16);
    }
  }
}

// One tile of queries of one head against all keys.
void attend(const AttentionProblem& p, const Workspace& w, int64_t head, int64_t first_query,
            const Scratch& s) {
  const bool bf16 = w.type == DType::kBF16;
  const int64_t rows = std::min(w.tile_queries, p.queries - first_query), b = head / p.heads;
  kernels().load(rows_of(p, p.q, head, first_query), rows, p.head_dim, w.tile_queries, w.padded_dim, s.q,
                 bf16);
  std::fill_n(s.sums, w.tile_queries * p.head_dim, 0.0f);
  SoftenJob job{.scores = s.scores,
                .weights = s.weights,
                .weights_bf16 = bf16,
                .rows = w.tile_queries,
                .padded_keys = w.tile_keys,
                .sums = s.sums,
                .head_dim = p.head_dim,
                .highest = s.highest,
                .total = s.total,
                .first = true,
                .scale = p.scale,
                .mask_stride = p.mask_strides[2],
                .masked_rows = rows,
                .causal = p.causal,
                .first_query = first_query};
  const int64_t last_key = p.causal ? std::min(p.keys, first_query + rows) : p.keys;
  const float* mask = p.mask ? p.mask + b * p.mask_strides[0] + head % p.heads * p.mask_strides[1] +
                                   first_query * p.mask_strides[2]
                             : nullptr;
  for (int64_t key = 0, tile = head * w.key_tiles; key < last_key; key += w.tile_keys, ++tile) {
    w.scores->execute(
        {.src = s.q, .weights = w.keys + tile * w.key_bytes, .dst = s.scores, .scratchpad = s.scratchpad});
    job.first_key = key;
    job.keys = std::min(w.tile_keys, p.keys - key);
    job.mask = mask ? mask + key : nullptr;
    kernels().softmax(job);
    job.first = false;
    w.sums->execute({.src = s.weights,
                     .weights = w.values + tile * w.value_bytes,
                     .dst = s.sums,
                     .scratchpad = s.scratchpad});
  }
  if (job.first) std::fill_n(s.total, rows, 0.0f);
  const int64_t y_row = p.heads * p.head_dim;
  const int64_t y = (b * p.queries + first_query) * y_row + head % p.heads * p.head_dim;
  kernels().finish({.sums = s.sums,
                    .total = s.total,
                    .rows = rows,
                    .head_dim = p.head_dim,
                    .y = static_cast<char*>(p.y) + y * static_cast<int64_t>(dtype_size(p.dtype)),
                    .y_stride = y_row,
                    .y_bf16 = p.dtype == DType::kBF16});
}

void attend_all(const AttentionProblem& p, const Workspace& w) {
  const int64_t tiles = divide_up(p.queries, w.tile_queries);
  StopRequest stop;
#pragma omp parallel num_threads(w.threads)
  {
    const Scratch scratch(w.scratch + static_cast<size_t>(omp_get_thread_num()) * w.scratch_bytes, p, w);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < p.batch * p.heads * tiles; ++i)
      if (!stop.asked()) attend(p, w, i / tiles, i % tiles * w.tile_queries, scratch);
  }
}

}  // namespace

Refusal supports_attention_onednn(const Exec& ex, const AttentionProblem& problem) {
  if (problem.head_dim == 0) return "there are no channels";
  return supports_host_f32_or_bf16(ex, problem);
}

void run_attention_onednn(Exec& ex, const AttentionProblem& problem) {
  Workspace w = workspace_of(problem);
  const int64_t tiles = problem.batch * problem.heads * w.key_tiles;
  const Tensor keys = ex.alloc({tiles, w.key_bytes}, DType::kU8);
  const Tensor values = ex.alloc({tiles, w.value_bytes}, DType::kU8);
  const Tensor scratch = ex.alloc({w.threads, static_cast<int64_t>(w.scratch_bytes)}, DType::kU8);
  w.keys = static_cast<char*>(keys.data());
  w.values = static_cast<char*>(values.data());
  w.scratch = static_cast<char*>(scratch.data());
  ex.launch(op_info(problem, "onednn"), [problem, w] {
    pack(problem, w);
    attend_all(problem, w);
  });
}

}  // namespace rocm_sd
