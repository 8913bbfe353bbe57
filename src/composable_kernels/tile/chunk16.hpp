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

}  // namespace rocm_sd
