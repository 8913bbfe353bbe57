// The problem that every implementation of attention takes, and the implementations.
#pragma once

#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_op.hpp"
#include "kernels/problem.hpp"

namespace rocm_sd {

struct AttentionProblem {
  // Row i of image b begins at b * image + i * row elements; head h owns columns [h * head_dim, ...).
  struct Rows {
    const void* data = nullptr;
    int64_t image = 0, row = 0;
  };
  Rows q, k, v;
  void* y = nullptr;                       // [batch, queries, heads * head_dim], contiguous
  const float* mask = nullptr;             // null where there is none, and always while planning
  int64_t mask_strides[4] = {0, 0, 0, 0};  // of image, head, query, key; 0 where the mask is broadcast
  bool masked = false, causal = false;
  bool pdl_keys_ready = false;  // as AttentionArgs
  DType dtype = DType::kF32;
  int64_t batch = 0, heads = 1, queries = 0, keys = 0, head_dim = 0;
  float scale = 1;

  const char* op() const { return "attention"; }
  AttentionSpec spec() const;  // what of the problem has a text
  std::string describe() const;
  double flops() const;
  double bytes() const;
  double output_bytes() const {
    return static_cast<double>(batch * heads * queries * head_dim) * static_cast<double>(dtype_size(dtype));
  }
};

// What attention() takes, checked.
AttentionProblem attention_problem(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                                   const AttentionArgs& args);

// Of a problem whose keys are a part of all.
Refusal supports_partial_flash(const Exec& ex, const AttentionProblem& problem);
Refusal supports_attention_gpu(const Exec& ex, const AttentionProblem& problem);
void run_attention_gpu(Exec& ex, const AttentionProblem& problem);
Refusal supports_attention_gpu_wave(const Exec& ex, const AttentionProblem& problem);
void run_attention_gpu_wave(Exec& ex, const AttentionProblem& problem);
Refusal supports_attention_onednn(const Exec& ex, const AttentionProblem& problem);
void run_attention_onednn(Exec& ex, const AttentionProblem& problem);
Refusal supports_attention_host_bf16(const Exec& ex, const AttentionProblem& problem);
void run_attention_host_bf16(Exec& ex, const AttentionProblem& problem);
void run_attention_host(Exec& ex, const AttentionProblem& problem);
Refusal supports_attention_scalar(const Exec& ex, const AttentionProblem& problem);
void run_attention_scalar(Exec& ex, const AttentionProblem& problem);
void run_attention_ref(Exec& ex, const AttentionProblem& problem);

}  // namespace rocm_sd
