// linear on Hopper, bf16, by warpgroup MMA: rows of kGemm and kGeglu of
// composable_kernels/families/hopper.hpp.
#include "composable_kernels/hopper/wgmma_product.hpp"
#include "kernels/gemm/linear_entries.hpp"

using rocm_sd::KernelFamily;

namespace rocm_sd {

template <class Storage, bool kGated, GemmConfig kConfig>
ROCM_SD_DEVICE void gemm_wgmma_kernel(const GemmParams<Storage>& p) {
  static_assert(kConfig.algorithm == GemmAlgorithm::kWgmma);
  using Cfg = WgmmaCfg<Storage, kConfig.shape>;
  static_assert(Cfg::kLdsBytes <= kConfig.lds_bytes(sizeof(Storage)));
  gemm_body<GpuArch, Cfg, kGated, WgmmaProduct<Cfg>>(p, static_cast<int>(GpuArch::group_x()),
                                                     static_cast<int>(GpuArch::group_y()),
                                                     GpuArch::lds<Cfg::kLdsBytes>());
}

}  // namespace rocm_sd

#define ROCM_SD_ENTRY(name, row) \
  ROCM_SD_GEMM_ENTRY_OF("gemm_", name, rocm_sd::Bf16, false, gemm_wgmma_kernel, KernelFamily::kGemm[row])
#include <entries/gemm_wgmma_bf16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) \
  ROCM_SD_GEMM_ENTRY_OF("geglu_", name, rocm_sd::Bf16, true, gemm_wgmma_kernel, KernelFamily::kGeglu[row])
#include <entries/geglu_wgmma_bf16.inc>
#undef ROCM_SD_ENTRY
