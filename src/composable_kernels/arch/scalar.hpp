// The scalar architecture: the host as a device whose workgroup is one lane. Barriers vanish, a reduction
// over the wave is the identity, LDS is a stack buffer and the grid a parallel loop. It runs every portable
// body under the sanitizers.
#pragma once

#include <cmath>
#include <cstdint>

#include "composable_kernels/block.hpp"

namespace rocm_sd {

struct Scalar {
  static constexpr int lanes = 1;

  static float wave_sum(float x) { return x; }
  static float wave_max(float x) { return x; }
  static double wave_sum(double x) { return x; }
  static float exp(float x) { return std::exp(x); }
  static float log(float x) { return std::log(x); }
  static float sqrt(float x) { return std::sqrt(x); }
  static float erfc(float x) { return std::erfc(x); }
  static float tanh(float x) { return std::tanh(x); }
  static float sin(float x) { return std::sin(x); }
  static float cos(float x) { return std::cos(x); }
  static double sqrt(double x) { return std::sqrt(x); }

  template <class T, int kSize>
  struct Lds {
    T data[kSize];
  };
};

template <>
struct Block<Scalar> {
  int64_t index = 0, count = 1;

  int64_t first_row() const { return index; }
  int64_t row_stride() const { return count; }
  int lane() const { return 0; }
  void barrier() const {}
};

}  // namespace rocm_sd
