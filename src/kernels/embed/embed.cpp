#include "kernels/embed/embed.hpp"

#include "kernels/embed/embed_impl.hpp"

namespace rocm_sd {
namespace {

const ImplList<EmbedTokensProblem> kEmbedTokens = {
    "embed_tokens",
    {
        {"gpu", supports_embed_tokens_gpu, run_embed_tokens_gpu},
        {"scalar", supports_host, run_embed_tokens_scalar},
        {"ref", supports_host, run_embed_tokens_ref},
    }};
const ImplList<TimestepEmbeddingProblem> kTimestepEmbedding = {
    "timestep_embedding",
    {
        {"gpu", supports_timestep_embedding_gpu, run_timestep_embedding_gpu},
        {"scalar", supports_host, run_timestep_embedding_scalar},
        {"ref", supports_host, run_timestep_embedding_ref},
    }};

void check_table(const Tensor& table, std::string_view name) {
  require(table && table.rank() == 2, "embed_tokens: the table of ", name, " must be [rows,C]",
          table ? concat(", is ", table.shape()) : std::string(", is missing"));
  require_activation_type(table, "embed_tokens", name);
  require_contiguous(table, "embed_tokens", name);
}
void check_output(DType dtype, std::string_view op) {
  require<UsageError>(is_activation_type(dtype), op, ": the result must be f32, bf16 or f16, not ", dtype);
}

}  // namespace

Tensor embed_tokens(Exec& ex, const Tensor& ids, const EmbeddingWeight& tokens,
                    const EmbeddingWeight& positions, DType dtype) {
  require(ids.rank() == 2 && ids.dtype() == DType::kI32, "embed_tokens: ids must be i32 [B,T], are ",
          ids.dtype(), " ", ids.shape());
  require_contiguous(ids, "embed_tokens", "ids");
  check_table(tokens.table, "tokens");
  check_table(positions.table, "positions");
  check_output(dtype, "embed_tokens");
  const int64_t width = tokens.table.dim(1);
  require(tokens.table.dim(0) >= 1, "embed_tokens: the table of tokens ", tokens.table.shape(), " is empty");
  require(positions.table.dim(1) == width && positions.table.dim(0) >= ids.dim(1), "embed_tokens: positions ",
          positions.table.shape(), " do not serve ids ", ids.shape(), " of width ", width);
  const Tensor y = ex.alloc({ids.dim(0), ids.dim(1), width}, dtype);
  const EmbedTokensProblem problem{.ids = ids.as<int32_t>(),
                                   .table = tokens.table.data(),
                                   .positions = positions.table.data(),
                                   .y = y.data(),
                                   .table_type = tokens.table.dtype(),
                                   .positions_type = positions.table.dtype(),
                                   .y_type = dtype,
                                   .rows = ids.dim(0),
                                   .tokens = ids.dim(1),
                                   .width = width,
                                   .vocabulary = tokens.table.dim(0)};
  select(ex, kEmbedTokens, problem).run(ex, problem);
  return y;
}

Tensor timestep_embedding(Exec& ex, const Tensor& t, int64_t dim, DType dtype,
                          const TimestepEmbeddingArgs& args) {
  require(t.rank() == 1 && t.dtype() == DType::kF32, "timestep_embedding: t must be f32 [B], is ", t.dtype(),
          " ", t.shape());
  require_contiguous(t, "timestep_embedding", "t");
  check_output(dtype, "timestep_embedding");
  require<UsageError>(dim >= 2 && static_cast<float>(dim / 2) > args.downscale_freq_shift,
                      "timestep_embedding: a width of ", dim, " with a shift of ", args.downscale_freq_shift,
                      " has no frequencies");
  const Tensor y = ex.alloc({t.dim(0), dim}, dtype);
  const TimestepEmbeddingProblem problem{
      .t = t.as<float>(), .y = y.data(), .y_type = dtype, .count = t.dim(0), .dim = dim, .args = args};
  select(ex, kTimestepEmbedding, problem).run(ex, problem);
  return y;
}

}  // namespace rocm_sd
