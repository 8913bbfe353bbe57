// The kernels of products in f8e4m3, for the .hip files of families that have them.
#include "kernels/gemm/linear_eight_bit_entries.hpp"

ROCM_SD_QUANTISE(f8e4m3_f16, F8F16)
ROCM_SD_QUANTISE(f8e4m3_bf16, F8Bf16)
#define ROCM_SD_ENTRY(name, row) \
  ROCM_SD_EIGHT_BIT_ENTRY("gemm_", name, F8F16, false, rocm_sd::KernelFamily::kEightBitGemm[row])
#include <entries/gemm_tiles_f8e4m3_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) \
  ROCM_SD_EIGHT_BIT_ENTRY("geglu_", name, F8F16, true, rocm_sd::KernelFamily::kEightBitGeglu[row])
#include <entries/geglu_tiles_f8e4m3_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) \
  ROCM_SD_EIGHT_BIT_ENTRY("gemm_", name, F8Bf16, false, rocm_sd::KernelFamily::kEightBitGemm[row])
#include <entries/gemm_tiles_f8e4m3_bf16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) \
  ROCM_SD_EIGHT_BIT_ENTRY("geglu_", name, F8Bf16, true, rocm_sd::KernelFamily::kEightBitGeglu[row])
#include <entries/geglu_tiles_f8e4m3_bf16.inc>
#undef ROCM_SD_ENTRY
