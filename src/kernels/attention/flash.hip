// Flash attention: the configurations of this family (kFlash, kFlashAnyMask and kFlashLargeD of
// composable_kernels/families/<family>.hpp).
#include "kernels/attention/flash_entry.hpp"

using rocm_sd::FlashMask;
using rocm_sd::KernelFamily;

#define ROCM_SD_ENTRY(name, row) ROCM_SD_FLASH_ENTRY(name, Half, FlashMask::kNone, KernelFamily::kFlash[row])
#include <entries/flash_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) ROCM_SD_FLASH_ENTRY(name, Bf16, FlashMask::kNone, KernelFamily::kFlash[row])
#include <entries/flash_bf16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) \
  ROCM_SD_FLASH_ENTRY(name, Half, FlashMask::kAny, KernelFamily::kFlashAnyMask[row])
#include <entries/flash_any_mask_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) \
  ROCM_SD_FLASH_ENTRY(name, Bf16, FlashMask::kAny, KernelFamily::kFlashAnyMask[row])
#include <entries/flash_any_mask_bf16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) ROCM_SD_FLASH_LARGE_D_ENTRY(name, Half, KernelFamily::kFlashLargeD[row])
#include <entries/flash_large_d_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) ROCM_SD_FLASH_LARGE_D_ENTRY(name, Bf16, KernelFamily::kFlashLargeD[row])
#include <entries/flash_large_d_bf16.inc>
#undef ROCM_SD_ENTRY
