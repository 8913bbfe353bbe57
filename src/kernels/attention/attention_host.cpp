// attention on the host's vector units: packs every head's keys and values, then one tile of queries per
// thread.
#include <omp.h>

#include <algorithm>

#include "kernels/attention/attention_impl.hpp"
#include "kernels/attention/attention_tile.hpp"
#include "kernels/host_table.hpp"
#include "runtime/stop_request.hpp"

namespace rocm_sd {
namespace {

#if defined(__x86_64__)
const AttentionKernels* bf16_kernels() { return &isa_v4_bf16::kAttentionKernels; }
#else
const AttentionKernels* bf16_kernels() { return nullptr; }
#endif

int64_t divide_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
int64_t round_up(int64_t n, int64_t unit) { return divide_up(n, unit) * unit; }

// Cuts n into tiles of at most `most`, as even as whole units allow.
int64_t even_tile(int64_t n, int64_t most, int64_t unit) {
  const int64_t tiles = std::max<int64_t>(divide_up(n, most), 1);
  return std::max(round_up(divide_up(n, tiles), unit), unit);
}

// Tiles so that a tile of keys and values (2 * keys * head_dim floats) and its scores stay in half of a 512
// KB L2.
AttentionTiling tiling_of(const AttentionProblem& p, const AttentionKernels& code) {
  AttentionTiling t;
  t.queries = p.queries;
  t.keys = p.keys;
  t.head_dim = p.head_dim;
  t.pack = code.pack;
  t.tile_queries = even_tile(p.queries, 64, code.strip_rows);
  const int64_t unit = 3 * code.lanes;
  const int64_t most = std::clamp<int64_t>(48 * 1024 / std::max<int64_t>(p.head_dim, 1), 96, 384);
  t.tile_keys = even_tile(p.keys, round_up(most, unit), unit);
  t.padded_keys = round_up(p.keys, code.lanes);
  t.padded_dim = round_up(p.head_dim, code.lanes);
  t.scratch = round_up(t.tile_queries * divide_up(t.head_dim, t.pack), 16) +
              t.tile_queries * (t.tile_keys + t.padded_dim + 3);
  t.scratch = round_up(t.scratch, 1024);
  return t;
}

// What a launch needs besides the problem.
struct Workspace {
  const AttentionKernels* code;
  AttentionTiling tiling;
  float *keys, *values;  // [batch * heads] packed heads
  int64_t keys_size, values_size;
  float* scratch;  // [threads, tiling.scratch]
  int threads;
};

AttentionRows head_of(const AttentionProblem& p, const AttentionProblem::Rows& rows, int64_t b, int64_t h) {
  const int64_t at = b * rows.image + h * p.head_dim;
  return {static_cast<const char*>(rows.data) + at * static_cast<int64_t>(dtype_size(p.dtype)), rows.row,
          p.dtype == DType::kBF16};
}

void pack(const AttentionProblem& p, const Workspace& w) {
  const AttentionTiling& t = w.tiling;
  const int64_t tiles = divide_up(t.keys, t.tile_keys);
#pragma omp parallel for schedule(static) num_threads(w.threads)
  for (int64_t i = 0; i < p.batch * p.heads * tiles; ++i) {
    const int64_t head = i / tiles, first_key = i % tiles * t.tile_keys;
    w.code->pack_keys(t, head_of(p, p.k, head / p.heads, head % p.heads), first_key,
                      w.keys + head * w.keys_size);
    w.code->pack_values(t, head_of(p, p.v, head / p.heads, head % p.heads), first_key,
                        w.values + head * w.values_size);
  }
}

void attend(const AttentionProblem& p, const Workspace& w) {
  const AttentionTiling& t = w.tiling;
  const int64_t tiles = divide_up(t.queries, t.tile_queries);
  StopRequest stop;
#pragma omp parallel for schedule(dynamic) num_threads(w.threads)
  for (int64_t i = 0; i < p.batch * p.heads * tiles; ++i) {
    if (stop.asked()) continue;
    const int64_t head = i / tiles, b = head / p.heads, h = head % p.heads;
    const int64_t y = (b * p.queries * p.heads + h) * p.head_dim;
    w.code->attend({.tiling = &t,
                    .q = head_of(p, p.q, b, h),
                    .keys = w.keys + head * w.keys_size,
                    .values = w.values + head * w.values_size,
                    .mask = p.mask ? p.mask + b * p.mask_strides[0] + h * p.mask_strides[1] : nullptr,
                    .mask_query_stride = p.mask_strides[2],
                    .causal = p.causal,
                    .scale = p.scale,
                    .first_query = i % tiles * t.tile_queries,
                    .scratch = w.scratch + omp_get_thread_num() * t.scratch,
                    .y = static_cast<char*>(p.y) + y * static_cast<int64_t>(dtype_size(p.dtype)),
                    .y_stride = p.heads * p.head_dim});
  }
}

void run(Exec& ex, const AttentionProblem& problem, const char* name, const AttentionKernels& code) {
  Workspace w;
  w.code = &code;
  w.tiling = tiling_of(problem, code);
  w.threads = host_threads();
  w.keys_size = w.tiling.padded_keys * divide_up(problem.head_dim, code.pack);
  w.values_size = divide_up(problem.keys, code.pack) * w.tiling.padded_dim;
  const int64_t heads = problem.batch * problem.heads;
  const Tensor keys = ex.alloc({heads, w.keys_size}, DType::kF32);
  const Tensor values = ex.alloc({heads, w.values_size}, DType::kF32);
  const Tensor scratch = ex.alloc({w.threads, w.tiling.scratch}, DType::kF32);
  w.keys = keys.as<float>();
  w.values = values.as<float>();
  w.scratch = scratch.as<float>();
  ex.launch(op_info(problem, name), [problem, w] {
    pack(problem, w);
    attend(problem, w);
  });
}

}  // namespace

void run_attention_host(Exec& ex, const AttentionProblem& problem) {
  run(ex, problem, "host", ROCM_SD_HOST_TABLE(kAttentionKernels));
}

Refusal supports_attention_host_bf16(const Exec& ex, const AttentionProblem& problem) {
  if (problem.dtype != DType::kBF16) return "takes bf16 only";
  if (!bf16_kernels() || !host_has_bf16()) return "this CPU does not multiply bf16";
  return supports_host(ex, problem);
}
void run_attention_host_bf16(Exec& ex, const AttentionProblem& problem) {
  run(ex, problem, "host_bf16", *bf16_kernels());
}

}  // namespace rocm_sd
