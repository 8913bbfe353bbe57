// Box-Muller over blocks of sixteen uniforms, in the exact arithmetic of PyTorch's CPU generator.
#pragma once

#include <cstdint>

namespace rocm_sd {

// values: `blocks` blocks of 16 uniforms in [0, 1) -> 16 standard normals each, in place. Bits are the same
// at every instruction set level.
namespace isa_baseline {
void box_muller_blocks(float* values, int64_t blocks);
}
namespace isa_v3 {
void box_muller_blocks(float* values, int64_t blocks);
}
namespace isa_v4 {
void box_muller_blocks(float* values, int64_t blocks);
}

}  // namespace rocm_sd
