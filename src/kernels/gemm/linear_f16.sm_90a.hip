// linear on Hopper, f16: products by warpgroups.
#include "composable_kernels/tile/warpgroup.hpp"
#include "kernels/gemm/linear_entries.hpp"

#define ROCM_SD_WGEMM_F16(...) ROCM_SD_WARPGROUP_ENTRY(wgemm_f16, rocm_sd::Half, false, __VA_ARGS__)
#define ROCM_SD_WGEGLU_F16(...) ROCM_SD_WARPGROUP_ENTRY(wgeglu_f16, rocm_sd::Half, true, __VA_ARGS__)
ROCM_SD_GEMM_CONFIGS_HOPPER(ROCM_SD_WGEMM_F16)
ROCM_SD_GEGLU_CONFIGS_HOPPER(ROCM_SD_WGEGLU_F16)
