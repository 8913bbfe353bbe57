// Division by a number that the host knows: a multiplication and a shift (Granlund and Montgomery, 1994).
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

struct FastDivide {
  int32_t divisor;
  uint32_t factor, shift;

  // x / divisor for 0 <= x < 2^31.
  ROCM_SD_DEVICE int32_t quotient(int32_t x) const {
    const auto n = static_cast<uint32_t>(x);
    const auto high = static_cast<uint32_t>(static_cast<uint64_t>(n) * factor >> 32);
    return static_cast<int32_t>((high + n) >> shift);
  }
};

// divisor: 1 .. 2^31 - 1; 0 gives a divider that must not be used.
inline FastDivide fast_divide(int32_t divisor) {
  FastDivide out{divisor, 0, 0};
  if (divisor <= 0) return out;
  while ((uint64_t{1} << out.shift) < static_cast<uint64_t>(divisor)) ++out.shift;
  const auto d = static_cast<uint64_t>(divisor);
  out.factor = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << out.shift) - d)) / d + 1);
  return out;
}

}  // namespace rocm_sd
