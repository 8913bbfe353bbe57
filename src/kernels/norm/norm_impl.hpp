// The problems that the implementations of group_norm and layer_norm take, and the implementations.
#pragma once

#include "kernels/norm/norm.hpp"
#include "kernels/norm/norm_op.hpp"
#include "kernels/problem.hpp"

namespace rocm_sd {

struct GroupNormProblem {
  const void* x = nullptr;       // [images, pixels, channels - second_channels]
  const void* second = nullptr;  // [images, pixels, second_channels]
  const float* gain = nullptr;   // [channels]
  const float* bias = nullptr;
  void* y = nullptr;  // [images, pixels, channels]
  int64_t images = 0, pixels = 0, channels = 0, second_channels = 0, groups = 1;
  float eps = 0;
  bool silu = false;
  DType dtype = DType::kF32;
  bool to_bf16 = false;  // y is bf16 where x is f32
  bool aligned = true;   // every operand begins at a multiple of 16 bytes; known while planning

  DType out_dtype() const { return to_bf16 ? DType::kBF16 : dtype; }
  int64_t first_channels() const { return channels - second_channels; }
  GroupNormSpec spec() const;  // what of the problem has a text
  const char* op() const { return "group_norm"; }
  std::string describe() const;
  double flops() const;
  double bytes() const;
};

struct LayerNormProblem {
  const void* x = nullptr;  // [rows, cols]
  const float* gain = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;
  int64_t rows = 0, cols = 0;
  float eps = 0;
  DType dtype = DType::kF32;
  bool to_bf16 = false;  // y is bf16 where x is f32
  bool aligned = true;   // as above

  DType out_dtype() const { return to_bf16 ? DType::kBF16 : dtype; }
  LayerNormSpec spec() const;
  const char* op() const { return "layer_norm"; }
  std::string describe() const;
  double flops() const;
  double bytes() const;
};

void run_group_norm_host(Exec& ex, const GroupNormProblem& problem);
Refusal supports_group_norm_scalar(const Exec& ex, const GroupNormProblem& problem);
void run_group_norm_scalar(Exec& ex, const GroupNormProblem& problem);
Refusal supports_group_norm_whole_scalar(const Exec& ex, const GroupNormProblem& problem);
void run_group_norm_whole_scalar(Exec& ex, const GroupNormProblem& problem);
Refusal supports_group_norm_cluster_scalar(const Exec& ex, const GroupNormProblem& problem);
void run_group_norm_cluster_scalar(Exec& ex, const GroupNormProblem& problem);
Refusal supports_group_norm_resident_scalar(const Exec& ex, const GroupNormProblem& problem);
void run_group_norm_resident_scalar(Exec& ex, const GroupNormProblem& problem);
Refusal supports_group_norm_gpu(const Exec& ex, const GroupNormProblem& problem);
void run_group_norm_gpu(Exec& ex, const GroupNormProblem& problem);
void run_group_norm_ref(Exec& ex, const GroupNormProblem& problem);

void run_layer_norm_host(Exec& ex, const LayerNormProblem& problem);
Refusal supports_layer_norm_gpu(const Exec& ex, const LayerNormProblem& problem);
void run_layer_norm_gpu(Exec& ex, const LayerNormProblem& problem);
void run_layer_norm_scalar(Exec& ex, const LayerNormProblem& problem);
void run_layer_norm_ref(Exec& ex, const LayerNormProblem& problem);

}  // namespace rocm_sd
