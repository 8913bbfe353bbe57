// Loops that the compiler unrolls, for steps that it must know: those that name registers, or stages; and one
// that it must not, for bodies that are long.
#pragma once

#include <type_traits>
#include <utility>

#include "composable_kernels/types.hpp"

namespace rocm_sd {

// step(0), ..., step(kCount - 1), each known to the compiler.
template <int kCount, class Step>
ROCM_SD_DEVICE void unrolled(const Step& step) {
  ROCM_SD_UNROLL
  for (int n = 0; n < kCount; ++n) step(n);
}

// The same with numbers that are constants, std::integral_constant<int, n>.
template <class Step, int... n>
ROCM_SD_DEVICE void with_numbers(std::integer_sequence<int, n...>, const Step& step) {
  (step(std::integral_constant<int, n>{}), ...);
}
template <int kCount, class Step>
ROCM_SD_DEVICE void unrolled_numbers(const Step& step) {
  with_numbers(std::make_integer_sequence<int, kCount>{}, step);
}

// step(0), ..., step(count - 1), of which the code is there once.
template <class Step>
ROCM_SD_DEVICE void rolled(int count, const Step& step) {
  ROCM_SD_ROLLED
  for (int n = 0; n < count; ++n) step(n);
}

// The sum over each kLanes neighbouring lanes of a wave, as a tree; the same in each of them.
template <class Arch, int kLanes>
ROCM_SD_DEVICE float sum_of_lanes(float x) {
  ROCM_SD_UNROLL
  for (int mask = kLanes / 2; mask > 0; mask /= 2) x += Arch::shuffle_xor(x, mask);
  return x;
}

}  // namespace rocm_sd
