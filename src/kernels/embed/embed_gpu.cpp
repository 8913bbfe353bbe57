// The embeddings on a GPU.
#include <algorithm>

#include "kernels/embed/embed_configs.hpp"
#include "kernels/embed/embed_params.hpp"
#include "kernels/gpu_launch.hpp"

namespace rocm_sd {
namespace {

using namespace embed_configs;

constexpr int64_t kMax = int64_t{1} << 30;  // rows, columns or angles: the kernels count in 32 bits

std::string tokens_kernel(const EmbedTokensProblem& p) {
  return concat("embed_tokens_", p.table_type, "_", p.y_type);
}
std::string timestep_kernel(const TimestepEmbeddingProblem& p) {
  return concat("timestep_embedding_", p.y_type);
}
bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

}  // namespace

Refusal supports_embed_tokens_gpu(const Exec& ex, const EmbedTokensProblem& p) {
  if (!gpu_device(ex)) return "runs on a GPU only";
  if (p.table_type != p.positions_type) return "takes tables of one type";
  if (p.rows > kMax || p.tokens > kMax || p.rows * p.tokens > kMax) return "takes no more than 2^30 tokens";
  if (!is_aligned(p.table) || !is_aligned(p.positions)) return "takes data at multiples of 16 bytes only";
  return supports_kernel(ex, tokens_kernel(p));
}
void run_embed_tokens_gpu(Exec& ex, const EmbedTokensProblem& p) {
  if (p.rows * p.tokens * p.width == 0) return;
  const int64_t rows = p.rows * p.tokens, groups = (rows + kTokenWaves - 1) / kTokenWaves;
  // The kernel does not look behind the pointers' types.
  const EmbedTokensParams<float, float, float> params{p.ids,
                                                      static_cast<const float*>(p.table),
                                                      static_cast<const float*>(p.positions),
                                                      static_cast<float*>(p.y),
                                                      rows,
                                                      p.tokens,
                                                      p.width,
                                                      p.vocabulary,
                                                      static_cast<uint32_t>(groups)};
  GpuDevice& device = *gpu_device(ex);
  launch_kernel(ex, op_info(p, "gpu"), *device.find_kernel(tokens_kernel(p)), {static_cast<uint32_t>(groups)},
                static_cast<uint32_t>(kTokenWaves * device.traits().lanes), 0, params);
}

Refusal supports_timestep_embedding_gpu(const Exec& ex, const TimestepEmbeddingProblem& p) {
  if (p.count > kMax || p.dim > kMax || p.count * p.dim > kMax) return "takes no more than 2^30 angles";
  return supports_kernel(ex, timestep_kernel(p));
}
void run_timestep_embedding_gpu(Exec& ex, const TimestepEmbeddingProblem& p) {
  const int64_t angles = p.count * (p.dim / 2 + p.dim % 2);
  if (angles == 0) return;
  const auto groups = static_cast<uint32_t>((angles + kTimestepThreads - 1) / kTimestepThreads);
  launch_kernel(ex, op_info(p, "gpu"), *gpu_device(ex)->find_kernel(timestep_kernel(p)), {groups},
                kTimestepThreads, 0, timestep_params<float>(p, groups));
}

}  // namespace rocm_sd
