// The kernels of products in i8, for the .hip files of families that have them.
#include "kernels/gemm/linear_eight_bit_entries.hpp"

ROCM_SD_QUANTISE(i8_f16, I8F16)
ROCM_SD_QUANTISE(i8_bf16, I8Bf16)
#define ROCM_SD_ENTRY(name, row) \
  ROCM_SD_EIGHT_BIT_ENTRY("gemm_", name, I8F16, false, rocm_sd::KernelFamily::kEightBitGemm[row])
#include <entries/gemm_tiles_i8_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) \
  ROCM_SD_EIGHT_BIT_ENTRY("geglu_", name, I8F16, true, rocm_sd::KernelFamily::kEightBitGeglu[row])
#include <entries/geglu_tiles_i8_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) \
  ROCM_SD_EIGHT_BIT_ENTRY("gemm_", name, I8Bf16, false, rocm_sd::KernelFamily::kEightBitGemm[row])
#include <entries/gemm_tiles_i8_bf16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) \
  ROCM_SD_EIGHT_BIT_ENTRY("geglu_", name, I8Bf16, true, rocm_sd::KernelFamily::kEightBitGeglu[row])
#include <entries/geglu_tiles_i8_bf16.inc>
#undef ROCM_SD_ENTRY
