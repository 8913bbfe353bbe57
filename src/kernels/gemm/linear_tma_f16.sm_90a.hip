// linear in f16 with tiles fetched by TMA: rows of kGemm and kGeglu of
// composable_kernels/families/hopper.hpp. Problem, mapping, traffic, numerics, limits:
// composable_kernels/hopper/gemm_tma.hpp.
#include "composable_kernels/hopper/gemm_tma.hpp"
#include "kernels/gemm/linear_entries.hpp"
#include "kernels/gemm/tma_config.hpp"

using rocm_sd::KernelFamily;

#define ENTRY(op, name, kGated, row)                                                                   \
  ROCM_SD_CHECK_NAME(name, row, op, "f16")                                                             \
  ROCM_SD_TMA_KERNEL(name, rocm_sd::TmaGemmParams<rocm_sd::Half>) {                                    \
    using namespace rocm_sd;                                                                           \
    using Cfg = TmaCfgOf<rocm_sd::Half, row>;                                                          \
    gemm_tma_body<Cfg, kGated>(p, static_cast<int>(GpuArch::group_x()),                                \
                               static_cast<int>(GpuArch::groups_x()), GpuArch::lds<Cfg::kLdsBytes>()); \
  }
#define ROCM_SD_ENTRY(name, row) ENTRY("gemm_", name, false, KernelFamily::kGemm[row])
#include <entries/gemm_tma_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) ENTRY("geglu_", name, true, KernelFamily::kGeglu[row])
#include <entries/geglu_tma_f16.inc>
#undef ROCM_SD_ENTRY
