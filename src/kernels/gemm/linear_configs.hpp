// Sizes that linear's small kernels and their launcher share. Tiles:
// composable_kernels/families/<family>.hpp.
#pragma once

namespace rocm_sd {

constexpr int kGemvWaves = 4;  // of a workgroup
constexpr int kGemmReduceThreads = 256;
constexpr int kQuantiseWaves = 4;  // of a workgroup, a row each

}  // namespace rocm_sd
