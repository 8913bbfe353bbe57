// linear on a GPU, f32 by ordinary multiply-adds: what --dtype f32 and re-runs in a wider type use.
#include "kernels/gemm/linear_entries.hpp"

using rocm_sd::KernelFamily;

#define ROCM_SD_ENTRY(name, row) ROCM_SD_GEMM_ENTRY(name, float, KernelFamily::kGemmF32[row])
#include <entries/gemm_tiles_f32.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) ROCM_SD_GEGLU_ENTRY(name, float, KernelFamily::kGemmF32[row])
#include <entries/geglu_tiles_f32.inc>
#undef ROCM_SD_ENTRY
ROCM_SD_GEMM_SMALL(f32, float)
