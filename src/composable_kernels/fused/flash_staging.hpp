// The name by which Hopper's bodies of flash attention know 16 bytes of a row.
#pragma once

#include "composable_kernels/tile/lds_tile.hpp"

namespace rocm_sd {

using FlashChunk = Chunk16;

}  // namespace rocm_sd
