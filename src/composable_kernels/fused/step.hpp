// What a sampler does to latents.
// Problem   y = sum of factor * term; y = a + scale (b - a), with the standard deviation mixed towards b's
// Mapping   linear combination: a wave takes every blocks-th run of lanes elements; guidance: one wave per
// image Traffic   each operand once (guidance with rescale: three times)      Numerics  double, rounded once
// Limits  none
#pragma once

#include "composable_kernels/block.hpp"

namespace rocm_sd {

struct LinearCombinationParams {
  static constexpr int kMaxTerms = 12;
  const float* terms[kMaxTerms];
  double factors[kMaxTerms];
  int count;
  float* y;
  int64_t size;
};

template <class Arch>
ROCM_SD_DEVICE void linear_combination_body(const LinearCombinationParams& p, const Block<Arch>& block) {
  for (int64_t run = block.first_row(); run * Arch::lanes < p.size; run += block.row_stride()) {
    const int64_t i = run * Arch::lanes + block.lane();
    if (i >= p.size) continue;
    double sum = 0;
    for (int t = 0; t < p.count; ++t) sum += p.factors[t] * static_cast<double>(p.terms[t][i]);
    p.y[i] = static_cast<float>(sum);
  }
}

template <class T>
struct GuidanceParams {
  const T* x;  // [2, images, size]
  float* y;    // [images, size]
  int64_t images, size;
  double scale, rescale;
};

// Cfg::T is the storage type.
template <class Arch, class Cfg>
ROCM_SD_DEVICE void guidance_body(const GuidanceParams<typename Cfg::T>& p, const Block<Arch>& block) {
  for (int64_t n = block.first_row(); n < p.images; n += block.row_stride()) {
    const auto conditional = [&](int64_t i) {
      return static_cast<double>(to_float(p.x[(p.images + n) * p.size + i]));
    };
    const auto guided = [&](int64_t i) {
      const double plain = static_cast<double>(to_float(p.x[n * p.size + i]));
      return plain + p.scale * (conditional(i) - plain);
    };
    const auto squares = [&](const auto& value) {
      const double mean = wave_sum_over_double(block, p.size, value) / static_cast<double>(p.size);
      return wave_sum_over_double(block, p.size,
                                  [&](int64_t i) { return (value(i) - mean) * (value(i) - mean); });
    };
    double factor = 1;
    if (p.rescale > 0) {
      const double own = squares(guided);
      if (own != 0) factor = p.rescale * Arch::sqrt(squares(conditional) / own) + 1 - p.rescale;
    }
    for (int64_t i = block.lane(); i < p.size; i += Arch::lanes)
      p.y[n * p.size + i] = static_cast<float>(factor * guided(i));
  }
}

}  // namespace rocm_sd
