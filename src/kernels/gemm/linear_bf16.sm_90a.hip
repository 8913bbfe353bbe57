// linear on Hopper, bf16: products by warpgroups.
#include "composable_kernels/tile/warpgroup.hpp"
#include "kernels/gemm/linear_entries.hpp"

#define ROCM_SD_WGEMM_BF16(...) ROCM_SD_WARPGROUP_ENTRY(wgemm_bf16, rocm_sd::Bf16, false, __VA_ARGS__)
#define ROCM_SD_WGEGLU_BF16(...) ROCM_SD_WARPGROUP_ENTRY(wgeglu_bf16, rocm_sd::Bf16, true, __VA_ARGS__)
ROCM_SD_GEMM_CONFIGS_HOPPER(ROCM_SD_WGEMM_BF16)
ROCM_SD_GEGLU_CONFIGS_HOPPER(ROCM_SD_WGEGLU_BF16)
