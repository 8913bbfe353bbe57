// How flash attention's kernels are instantiated from the rows of a family's file. Only .hip files include
// it.
#pragma once

#include "composable_kernels/families/target.hpp"
#include "composable_kernels/fused/flash_attention.hpp"
#include "composable_kernels/fused/flash_large_d.hpp"

namespace rocm_sd {

// The launcher counts LDS by what the family says of its pipeline.
static_assert(PipelineOf<GpuArch>::kTransposesValues == (KernelFamily::kValues == ValueLayout::kTransposed));

template <class Storage, FlashConfig kConfig, FlashMask kMask>
struct FlashCfg {
  using T = Storage;
  static constexpr int kDim = kConfig.head_dim, kQueryAtoms = kConfig.queries / 16, kKeys = kConfig.keys;
  static constexpr int kWaves = kConfig.waves, kStages = kConfig.stages;
  using Pipeline = PipelineOf<GpuArch>;
  static constexpr bool kGeneral = kMask == FlashMask::kAny, kTransposed = Pipeline::kTransposesValues;
  static constexpr bool kQueriesInLds = kConfig.query_store == QueryStore::kLds;
};

template <class Storage, FlashLargeDConfig kConfig>
struct FlashLargeDCfg {
  using T = Storage;
  static constexpr int kDim = kConfig.head_dim, kQueries = kConfig.queries, kKeys = kConfig.keys;
  static constexpr int kWavesQ = kConfig.waves_q, kWavesK = kConfig.waves_k, kStages = kConfig.stages;
  static constexpr int kChunkDim = kConfig.chunk_dim, kChunkKeys = kConfig.chunk_keys;
  using Pipeline = PipelineOf<GpuArch>;
  static constexpr bool kTransposed = Pipeline::kTransposesValues;
  static constexpr bool kQueriesInLds = kConfig.query_store == QueryStore::kLds;
};

template <template <class, class> class Form, class Cfg>
ROCM_SD_DEVICE void flash_kernel(const FlashParams<typename Cfg::T>& p) {
  using Body = Form<GpuArch, Cfg>;
  const GroupPlace group = place_of_group<GpuArch>(p.order);
  Body(p, reinterpret_cast<typename Cfg::T*>(GpuArch::lds<2 * Body::kLdsElements>()),
       {group.x, group.y, group.z})
      .run();
}

}  // namespace rocm_sd

#define ROCM_SD_FLASH_ENTRY(name, T, mask, row)                                                  \
  ROCM_SD_CHECK_NAME(name, row, rocm_sd::kElementName<rocm_sd::T>, mask)                         \
  ROCM_SD_KERNEL(name, (row).waves* rocm_sd::GpuArch::lanes, (row).occupancy,                    \
                 rocm_sd::FlashParams<rocm_sd::T>) {                                             \
    rocm_sd::flash_kernel<rocm_sd::FlashAttention, rocm_sd::FlashCfg<rocm_sd::T, row, mask>>(p); \
  }
#define ROCM_SD_FLASH_LARGE_D_ENTRY(name, T, row)                                             \
  ROCM_SD_CHECK_NAME(name, row, rocm_sd::kElementName<rocm_sd::T>)                            \
  ROCM_SD_KERNEL(name, (row).waves_q*(row).waves_k* rocm_sd::GpuArch::lanes, 1,               \
                 rocm_sd::FlashParams<rocm_sd::T>) {                                          \
    rocm_sd::flash_kernel<rocm_sd::FlashLargeD, rocm_sd::FlashLargeDCfg<rocm_sd::T, row>>(p); \
  }
