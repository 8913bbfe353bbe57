// The portable bodies' arguments for the problems of the step ops.
#pragma once

#include <algorithm>

#include "composable_kernels/fused/step.hpp"
#include "kernels/step/step_impl.hpp"

namespace rocm_sd {

static_assert(LinearCombinationParams::kMaxTerms == LinearCombinationProblem::kMaxTerms);

inline bool at_16_bytes(std::initializer_list<const void*> all) {
  return std::ranges::all_of(all,
                             [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; });
}

inline LinearCombinationParams linear_combination_params(const LinearCombinationProblem& p,
                                                         uint32_t workgroups) {
  LinearCombinationParams params{.terms = {},
                                 .factors = {},
                                 .y = p.y,
                                 .size = p.size,
                                 .count = p.count,
                                 .aligned = at_16_bytes({p.y}),
                                 .workgroups = workgroups};
  for (int t = 0; t < p.count; ++t) {
    params.terms[t] = p.terms[t];
    params.factors[t] = p.factors[t];
    params.aligned &= at_16_bytes({p.terms[t]});
  }
  return params;
}

// How guidance with rescale cuts the elements of an image, of which it has at least one.
struct GuidanceParts {
  int64_t part = 0;
  int32_t parts = 0;
};
inline GuidanceParts guidance_parts(const GuidanceProblem& p) {
  constexpr int64_t kLeast = 2048, kMax = 64;  // elements of a part, parts
  const int64_t part = std::max(kLeast, (p.size + kMax - 1) / kMax);
  return {part, static_cast<int32_t>((p.size + part - 1) / part)};
}

template <class T>
GuidanceParams<T> guidance_params(const GuidanceProblem& p, uint32_t workgroups, double* moments = nullptr,
                                  const GuidanceParts& parts = {}) {
  const auto half = static_cast<size_t>(p.images * p.size) * dtype_size(p.dtype);
  return {static_cast<const T*>(p.x),
          p.y,
          p.images,
          p.size,
          p.scale,
          p.rescale,
          at_16_bytes({p.x, p.y}) && half % 16 == 0,
          workgroups,
          moments,
          parts.part,
          parts.parts};
}

// partial: [workgroups].
template <class T>
CountNonfiniteParams<T> count_nonfinite_params(const CountNonfiniteProblem& p, double* partial,
                                               uint32_t workgroups) {
  return {static_cast<const T*>(p.x), partial, p.count, p.size, at_16_bytes({p.x}), workgroups};
}

}  // namespace rocm_sd
