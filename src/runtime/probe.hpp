// The arguments of the probe kernels (src/kernels/probe/probe.hip), which show whether a device runs our
// code.
#pragma once

#include <cstdint>

namespace rocm_sd {

struct ProbeParams {
  const float* x;  // [count]
  float* y;        // [count]
  float scale;
  int32_t count;
  int32_t rounds;
};

}  // namespace rocm_sd
