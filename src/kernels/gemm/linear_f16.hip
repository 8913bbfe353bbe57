// linear on a GPU, f16: the tiles of this family (kGemm and kGeglu of
// composable_kernels/families/<family>.hpp).
#include "kernels/gemm/linear_entries.hpp"

using rocm_sd::KernelFamily;

#define ROCM_SD_ENTRY(name, row) ROCM_SD_GEMM_ENTRY(name, rocm_sd::Half, KernelFamily::kGemm[row])
#include <entries/gemm_tiles_f16.inc>
#include <entries/gemm_to_lds_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) ROCM_SD_GEGLU_ENTRY(name, rocm_sd::Half, KernelFamily::kGeglu[row])
#include <entries/geglu_tiles_f16.inc>
#include <entries/geglu_to_lds_f16.inc>
#undef ROCM_SD_ENTRY
ROCM_SD_GEMM_SMALL(f16, rocm_sd::Half)
