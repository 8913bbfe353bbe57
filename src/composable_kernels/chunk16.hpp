// 16 bytes in registers: what one load, one store, or one copy of a lane moves.
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

// As one value: an aggregate would be copied through memory by clang 19. It may alias the elements that it
// is made of.
#if defined(__CUDACC__)
using Chunk16 = uint4;
#else
using Chunk16 = uint32_t __attribute__((vector_size(16), may_alias));
#endif

// Four floats as one access; `to` and `from` are multiples of 16 bytes.
struct FourFloats {
  float x[4];
};
ROCM_SD_DEVICE void store_four(float* to, const FourFloats& four) {
  *reinterpret_cast<Chunk16*>(to) = __builtin_bit_cast(Chunk16, four);
}
ROCM_SD_DEVICE FourFloats load_four(const float* from) {
  return __builtin_bit_cast(FourFloats, *reinterpret_cast<const Chunk16*>(from));
}

}  // namespace rocm_sd
