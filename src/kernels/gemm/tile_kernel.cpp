#include "kernels/gemm/tile_kernel.hpp"

#include "runtime/device.hpp"

namespace rocm_sd {

const TileKernels& tile_kernels() {
#if defined(__x86_64__)
  switch (host_isa()) {
    case HostIsa::kV4: return isa_v4::kTileKernels;
    case HostIsa::kV3: return isa_v3::kTileKernels;
    case HostIsa::kBaseline: break;
  }
#endif
  return isa_baseline::kTileKernels;
}

}  // namespace rocm_sd
