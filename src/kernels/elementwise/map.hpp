// One elementwise map over rows: what every op of elementwise.hpp, and some of step.hpp, come down to.
#pragma once

#include "kernels/problem.hpp"

namespace rocm_sd {

enum class Map {
  kCopy,
  kSilu,
  kGelu,
  kQuickGelu,
  kRelu,
  kAdd,        // a + b
  kMulGelu,    // a * gelu(b)
  kAffine,     // a * p0 + p1
  kSoftClamp,  // p0 * tanh(a / p0)
  kRgb8,       // 8 bits of what a * p0 + p1 brings to 0..1
  kSplit,      // bf16(a), and at part_stride what that rounding takes away, and at twice that, if parts is 3,
               // bf16(a)
  kAddScaled,  // a + factors[r] * b
  kLeakyRelu,  // a, or p0 * a where it is negative
  kPRelu,      // a, or b * a where it is negative
};

// y[r, c] = map(a[r, c], b[r, c]) for rows strided at will. a, b and y f32, bf16 or f16; y u8 for kRgb8
// alone.
struct MapProblem {
  const char* name = "";  // the op, for profiles
  Map map = Map::kCopy;
  const void* a = nullptr;
  const void* b = nullptr;
  void* y = nullptr;
  DType a_type = DType::kF32, b_type = DType::kF32, y_type = DType::kF32;
  int64_t rows = 1, cols = 0;
  int64_t a_stride = 0, b_stride = 0, y_stride = 0;  // elements from row to row
  float p0 = 1, p1 = 0;
  int64_t part_stride = 0;         // kSplit's, in elements of y
  int parts = 1;                   // of y for each element of a
  const float* factors = nullptr;  // kAddScaled's, [rows], read when the map runs

  bool binary() const {
    return map == Map::kAdd || map == Map::kMulGelu || map == Map::kAddScaled || map == Map::kPRelu;
  }
  const char* op() const { return name; }
  std::string describe() const;
  double flops() const { return map == Map::kCopy ? 0.0 : static_cast<double>(rows * cols); }
  double bytes() const;
};

// Chooses and launches an implementation.
void run_map(Exec& ex, const MapProblem& problem);

Refusal supports_map_gpu(const Exec& ex, const MapProblem& problem);
void run_map_gpu(Exec& ex, const MapProblem& problem);
Refusal supports_map_host(const Exec& ex, const MapProblem& problem);
void run_map_host(Exec& ex, const MapProblem& problem);
Refusal supports_map_scalar(const Exec& ex, const MapProblem& problem);
void run_map_scalar(Exec& ex, const MapProblem& problem);
void run_map_ref(Exec& ex, const MapProblem& problem);

}  // namespace rocm_sd
