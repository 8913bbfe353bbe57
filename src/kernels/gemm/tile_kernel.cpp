#include "kernels/gemm/tile_kernel.hpp"

#include "kernels/host_table.hpp"

namespace rocm_sd {

const TileKernels& tile_kernels() { return ROCM_SD_HOST_TABLE(kTileKernels); }

}  // namespace rocm_sd
