// What the kernels of memory-bound ops and their launches must agree on.
#pragma once

namespace rocm_sd {

inline constexpr int kMemoryBoundThreads = 256;  // of a workgroup

}  // namespace rocm_sd
