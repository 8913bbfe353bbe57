// The weights of one axis of a resize.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/resample/resample.hpp"

namespace rocm_sd {

// Output element i is the sum of weights[i * width + j] * input[first[i] + j] for j < count[i].
struct ResampleTaps {
  std::vector<int32_t> first, count;
  std::vector<float> weights;
  int64_t width = 0;  // most inputs of an output
};

// in and out >= 1. Weights add up to one; inputs beyond the edge have none.
ResampleTaps make_taps(ResampleMode mode, int64_t in, int64_t out);

}  // namespace rocm_sd
