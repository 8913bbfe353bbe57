// Sizes that conv2d's small kernels and their launcher share. Tiles:
// composable_kernels/families/<family>.hpp.
#pragma once

namespace rocm_sd {

// Threads of the small kernels: layouts and the reduction of split sums.
constexpr int kConvSmallThreads = 256;

}  // namespace rocm_sd
