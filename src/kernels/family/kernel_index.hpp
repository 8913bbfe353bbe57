// The compiled kernels of all families by name and by the choices that name them, so that nobody has to read
// a configuration out of a text.
#pragma once

#include <string>
#include <string_view>

namespace rocm_sd {

// The tile of the output that a workgroup of the kernel makes; attention: queries, and 0 columns, for it has
// all of a head's. Zeros for kernels without tiles and for names of none.
struct KernelTile {
  int rows = 0, columns = 0;
};
KernelTile tile_of_kernel_named(std::string_view kernel);

// The kernel "gemm_wgmma_f16_128x160x64" of op "gemm_" (or "geglu_", "conv_") that a choice "128x160x64g" or
// "128x256x64b2" (without its splits) launches for 16-bit or f32 elements; "" for a choice of none.
std::string gemm_kernel_of_choice(std::string_view op, std::string_view choice, std::string_view type);

}  // namespace rocm_sd
