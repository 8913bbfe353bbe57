// linear on Hopper with 8-bit operands (f8e4m3), tiles fetched by TMA: rows of kEightBitGemm and
// kEightBitGeglu of composable_kernels/families/hopper.hpp. Problem, mapping, traffic, numerics, limits:
// composable_kernels/hopper/gemm_eight_bit_tma.hpp.
#include "composable_kernels/hopper/gemm_eight_bit_tma.hpp"
#include "kernels/gemm/linear_eight_bit_entries.hpp"
#include "kernels/gemm/tma_config.hpp"

namespace rocm_sd {

template <class Types>
using TmaEightBitParamsOf = TmaEightBitParams<typename Types::EightBit, typename Types::Storage>;

}  // namespace rocm_sd

// Names count elements, of which a step's pairs have two.
#define ENTRY(op, name, Types, kGated, row)                                                                 \
  ROCM_SD_CHECK_NAME(name, row, op, rocm_sd::Types::kName, 2)                                               \
  ROCM_SD_TMA_KERNEL(name, rocm_sd::TmaEightBitParamsOf<rocm_sd::Types>) {                                  \
    using namespace rocm_sd;                                                                                \
    using Cfg = TmaCfgOf<typename Types::EightBit, row>;                                                    \
    eight_bit_tma_body<Cfg, kGated>(p, static_cast<int>(GpuArch::group_x()),                                \
                                    static_cast<int>(GpuArch::groups_x()), GpuArch::lds<Cfg::kLdsBytes>()); \
  }
#define ROCM_SD_ENTRY(name, row) ENTRY("gemm_", name, F8F16, false, rocm_sd::KernelFamily::kEightBitGemm[row])
#include <entries/gemm_tma_f8e4m3_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) \
  ENTRY("geglu_", name, F8F16, true, rocm_sd::KernelFamily::kEightBitGeglu[row])
#include <entries/geglu_tma_f8e4m3_f16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) \
  ENTRY("gemm_", name, F8Bf16, false, rocm_sd::KernelFamily::kEightBitGemm[row])
#include <entries/gemm_tma_f8e4m3_bf16.inc>
#undef ROCM_SD_ENTRY
#define ROCM_SD_ENTRY(name, row) \
  ENTRY("geglu_", name, F8Bf16, true, rocm_sd::KernelFamily::kEightBitGeglu[row])
#include <entries/geglu_tma_f8e4m3_bf16.inc>
#undef ROCM_SD_ENTRY
