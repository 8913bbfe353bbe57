// linear on Hopper, bf16, by warpgroup products.
#include "composable_kernels/hopper/wgmma_product.hpp"
#include "kernels/gemm/linear_entries.hpp"

#define ROCM_SD_GEMM_BF16(...) ROCM_SD_WGMMA_ENTRY(gemm_wgmma_bf16, rocm_sd::Bf16, false, __VA_ARGS__)
#define ROCM_SD_GEGLU_BF16(...) ROCM_SD_WGMMA_ENTRY(geglu_wgmma_bf16, rocm_sd::Bf16, true, __VA_ARGS__)
ROCM_SD_GEMM_CONFIGS_HOPPER(ROCM_SD_GEMM_BF16)
ROCM_SD_GEGLU_CONFIGS_HOPPER(ROCM_SD_GEGLU_BF16)
