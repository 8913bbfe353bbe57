// linear on Hopper, f16, by warpgroup products.
#include "composable_kernels/hopper/wgmma_product.hpp"
#include "kernels/gemm/linear_entries.hpp"

#define ROCM_SD_GEMM_F16(...) ROCM_SD_WGMMA_ENTRY(gemm_wgmma_f16, rocm_sd::Half, false, __VA_ARGS__)
#define ROCM_SD_GEGLU_F16(...) ROCM_SD_WGMMA_ENTRY(geglu_wgmma_f16, rocm_sd::Half, true, __VA_ARGS__)
ROCM_SD_GEMM_CONFIGS_HOPPER(ROCM_SD_GEMM_F16)
ROCM_SD_GEGLU_CONFIGS_HOPPER(ROCM_SD_GEGLU_F16)
