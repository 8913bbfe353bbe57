// The problems that the implementations of the embeddings take, and the implementations.
#pragma once

#include "kernels/embed/embed.hpp"
#include "kernels/problem.hpp"

namespace rocm_sd {

struct EmbedTokensProblem {
  const int32_t* ids = nullptr;     // [rows, tokens]
  const void* table = nullptr;      // [vocabulary, width]
  const void* positions = nullptr;  // [>= tokens, width]
  void* y = nullptr;                // [rows, tokens, width]
  DType table_type = DType::kF32, positions_type = DType::kF32, y_type = DType::kF32;
  int64_t rows = 0, tokens = 0, width = 0, vocabulary = 0;

  const char* op() const { return "embed_tokens"; }
  std::string describe() const { return concat(y_type, " [", rows, ",", tokens, ",", width, "]"); }
  double flops() const { return static_cast<double>(rows * tokens * width); }
  double bytes() const {
    return static_cast<double>(rows * tokens * width) *
           static_cast<double>(dtype_size(table_type) + dtype_size(y_type));
  }
};

struct TimestepEmbeddingProblem {
  const float* t = nullptr;  // [count]
  void* y = nullptr;         // [count, dim]
  DType y_type = DType::kF32;
  int64_t count = 0, dim = 0;
  TimestepEmbeddingArgs args;

  const char* op() const { return "timestep_embedding"; }
  std::string describe() const { return concat(y_type, " [", count, ",", dim, "]"); }
  double flops() const { return 20.0 * static_cast<double>(count * dim); }
  double bytes() const { return static_cast<double>(count * dim) * static_cast<double>(dtype_size(y_type)); }
};

Refusal supports_embed_tokens_gpu(const Exec& ex, const EmbedTokensProblem& problem);
void run_embed_tokens_gpu(Exec& ex, const EmbedTokensProblem& problem);
void run_embed_tokens_scalar(Exec& ex, const EmbedTokensProblem& problem);
void run_embed_tokens_ref(Exec& ex, const EmbedTokensProblem& problem);
Refusal supports_timestep_embedding_gpu(const Exec& ex, const TimestepEmbeddingProblem& problem);
void run_timestep_embedding_gpu(Exec& ex, const TimestepEmbeddingProblem& problem);
void run_timestep_embedding_scalar(Exec& ex, const TimestepEmbeddingProblem& problem);
void run_timestep_embedding_ref(Exec& ex, const TimestepEmbeddingProblem& problem);

}  // namespace rocm_sd
