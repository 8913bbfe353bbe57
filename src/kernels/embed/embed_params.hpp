// The timestep embedding's argument, shared by its launchers.
#pragma once

#include <cmath>

#include "composable_kernels/fused/embedding.hpp"
#include "kernels/embed/embed_impl.hpp"

namespace rocm_sd {

template <class Y>
TimestepEmbeddingParams<Y> timestep_params(const TimestepEmbeddingProblem& p, uint32_t groups) {
  return {p.t,
          static_cast<Y*>(p.y),
          static_cast<int32_t>(p.count),
          static_cast<int32_t>(p.dim),
          p.args.flip_sin_to_cos,
          p.args.downscale_freq_shift,
          -static_cast<float>(std::log(static_cast<double>(p.args.max_period))),
          groups};
}

}  // namespace rocm_sd
