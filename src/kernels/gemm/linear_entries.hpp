// How the kernels of linear layers are instantiated from the rows of a family's file. Only .hip files include
// it, once per storage type each. Problem, mapping, traffic, numerics, limits:
// composable_kernels/fused/gemm.hpp and gemv.hpp.
#pragma once

#include "composable_kernels/families/target.hpp"
#include "composable_kernels/fused/gemm.hpp"
#include "composable_kernels/fused/gemv.hpp"
#include "kernels/gemm/linear_configs.hpp"

namespace rocm_sd {

template <class Storage, bool kGated, GemmConfig kConfig>
ROCM_SD_DEVICE void gemm_tiles_kernel(const GemmParams<Storage>& p) {
  constexpr bool kToLds = kConfig.algorithm == GemmAlgorithm::kLoadsToLds;
  static_assert(kConfig.algorithm == GemmAlgorithm::kTiles || kToLds);
  static_assert(GpuArch::kSumsParts == (KernelFamily::kPartSums == PartSums::kWorkgroups));
  using Cfg = std::conditional_t<kToLds, LoadsToLdsCfg<Storage, kConfig.shape>,
                                 TileCfg<GpuArch, Storage, kConfig.shape>>;
  using Policy = std::conditional_t<kToLds, LoadsToLds, PipelineOf<GpuArch>>;
  static_assert(Cfg::kLdsBytes <= kConfig.lds_bytes(sizeof(Storage)));
  const GroupPlace group = place_of_group<GpuArch>(p.order);
  gemm_body<GpuArch, Cfg, kGated, Policy>(p, group.x, group.y, GpuArch::lds<Cfg::kLdsBytes>());
}

}  // namespace rocm_sd

#define ROCM_SD_GEMM_ENTRY_OF(op, name, Storage, kGated, body, row)                    \
  ROCM_SD_CHECK_NAME(name, row, op, rocm_sd::kElementName<Storage>)                    \
  ROCM_SD_KERNEL(name, (row).shape.waves() * rocm_sd::GpuArch::lanes, (row).occupancy, \
                 rocm_sd::GemmParams<Storage>) {                                       \
    rocm_sd::body<Storage, kGated, row>(p);                                            \
  }
#define ROCM_SD_GEMM_ENTRY(name, Storage, row) \
  ROCM_SD_GEMM_ENTRY_OF("gemm_", name, Storage, false, gemm_tiles_kernel, row)
#define ROCM_SD_GEGLU_ENTRY(name, Storage, row) \
  ROCM_SD_GEMM_ENTRY_OF("geglu_", name, Storage, true, gemm_tiles_kernel, row)

// The kernels that every storage type has: few rows, and the sum of split products.
#define ROCM_SD_GEMM_SMALL(suffix, Storage)                                                                  \
  ROCM_SD_KERNEL(gemv_##suffix, rocm_sd::kGemvWaves* rocm_sd::GpuArch::lanes, 1,                             \
                 rocm_sd::GemmParams<Storage>) {                                                             \
    using namespace rocm_sd;                                                                                 \
    using Cfg = GemvCfg<Storage, kGemvWaves>;                                                                \
    gemv_body<GpuArch, Cfg>(p, static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::group_y()),   \
                            GpuArch::lds<Cfg::kLdsBytes>());                                                 \
  }                                                                                                          \
  ROCM_SD_KERNEL(gemv_geglu_##suffix, rocm_sd::kGemvWaves* rocm_sd::GpuArch::lanes, 1,                       \
                 rocm_sd::GemmParams<Storage>) {                                                             \
    using namespace rocm_sd;                                                                                 \
    using Cfg = GemvCfg<Storage, kGemvWaves>;                                                                \
    gemv_gated_body<GpuArch, Cfg>(p, static_cast<int>(GpuArch::group_x()),                                   \
                                  static_cast<int>(GpuArch::group_y()), GpuArch::lds<Cfg::kLdsBytes>());     \
  }                                                                                                          \
  ROCM_SD_KERNEL(gemm_reduce_##suffix, rocm_sd::kGemmReduceThreads, 1, rocm_sd::GemmReduceParams<Storage>) { \
    using namespace rocm_sd;                                                                                 \
    gemm_reduce_body<GpuArch>(                                                                               \
        p, static_cast<int64_t>(GpuArch::group_x()) * kGemmReduceThreads + GpuArch::thread());               \
  }
