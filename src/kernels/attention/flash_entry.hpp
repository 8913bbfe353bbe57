// How the flash attention kernels of every family are instantiated from the rows of flash_configs.hpp. Only
// .hip files include it.
#pragma once

#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/flash_attention.hpp"
#include "composable_kernels/fused/flash_large_d.hpp"
#include "kernels/attention/flash_configs.hpp"

namespace rocm_sd {

template <class Storage, bool kAnyMask, int kHeadDim, int kWaveQueries, int kTileKeys, int kWaveCount,
          int kStageCount, int kGroups, bool kInLds>
struct FlashCfg {
  using T = Storage;
  static constexpr int kDim = kHeadDim, kQueryAtoms = kWaveQueries / 16, kKeys = kTileKeys;
  static constexpr int kWaves = kWaveCount, kStages = kStageCount;
  using Pipeline = PipelineOf<GpuArch>;
  static constexpr bool kGeneral = kAnyMask, kTransposed = Pipeline::kTransposesValues,
                        kQueriesInLds = kInLds;
  static constexpr FlashConfig kRow = {kHeadDim,    kWaveQueries, kTileKeys, kWaveCount,
                                       kStageCount, kGroups,      kInLds};
  static constexpr int kLdsOfLauncher = flash_lds_elements(kRow, kTransposed, flash_row_pad(GpuArch::lanes));
};

template <class Storage, int kHeadDim, int kTileQueries, int kTileKeys, int kWavesOfQ, int kWavesOfK,
          int kPieceDim, int kPieceKeys, int kStageCount>
struct FlashLargeDCfg {
  using T = Storage;
  static constexpr int kDim = kHeadDim, kQueries = kTileQueries, kKeys = kTileKeys;
  static constexpr int kWavesQ = kWavesOfQ, kWavesK = kWavesOfK, kStages = kStageCount;
  static constexpr int kChunkDim = kPieceDim, kChunkKeys = kPieceKeys;
  using Pipeline = PipelineOf<GpuArch>;
  static constexpr bool kTransposed = Pipeline::kTransposesValues;
  static constexpr FlashLargeDConfig kRow = {kHeadDim,  kTileQueries, kTileKeys,  kWavesOfQ,
                                             kWavesOfK, kPieceDim,    kPieceKeys, kStageCount};
  static constexpr int kLdsOfLauncher =
      flash_large_d_lds_elements(kRow, kTransposed, flash_row_pad(GpuArch::lanes));
};

template <template <class, class> class Form, class Cfg>
ROCM_SD_DEVICE void flash_kernel(const FlashParams<typename Cfg::T>& p) {
  using Body = Form<GpuArch, Cfg>;
  static_assert(Body::kLdsElements == Cfg::kLdsOfLauncher);
  Body(p, reinterpret_cast<typename Cfg::T*>(GpuArch::lds<2 * Body::kLdsElements>()),
       {static_cast<int>(GpuArch::group_x()), static_cast<int>(GpuArch::group_y()),
        static_cast<int>(GpuArch::group_z())})
      .run();
}

}  // namespace rocm_sd

#define ROCM_SD_FLASH_ENTRY(kind, type, T, any_mask, dim, queries, keys, waves, stages, groups, in_lds)     \
  ROCM_SD_KERNEL(kind##_##type##_d##dim##_q##queries##_k##keys##_w##waves##_s##stages,                      \
                 (waves) * rocm_sd::GpuArch::lanes, groups, rocm_sd::FlashParams<rocm_sd::T>) {             \
    using Cfg = rocm_sd::FlashCfg<rocm_sd::T, any_mask, dim, queries, keys, waves, stages, groups, in_lds>; \
    rocm_sd::flash_kernel<rocm_sd::FlashAttention, Cfg>(p);                                                 \
  }
#define ROCM_SD_FLASH_F16(...) ROCM_SD_FLASH_ENTRY(flash, f16, Half, false, __VA_ARGS__)
#define ROCM_SD_FLASH_BF16(...) ROCM_SD_FLASH_ENTRY(flash, bf16, Bf16, false, __VA_ARGS__)
#define ROCM_SD_FLASH_F16_GENERAL(...) ROCM_SD_FLASH_ENTRY(flash_general, f16, Half, true, __VA_ARGS__)
#define ROCM_SD_FLASH_BF16_GENERAL(...) ROCM_SD_FLASH_ENTRY(flash_general, bf16, Bf16, true, __VA_ARGS__)

#define ROCM_SD_FLASH_LARGE_D_ENTRY(type, T, dim, queries, keys, wq, wk, cd, ck, stages)              \
  ROCM_SD_KERNEL(                                                                                     \
      flash_large_d_##type##_d##dim##_q##queries##_k##keys##_w##wq##x##wk##_c##cd##x##ck##_s##stages, \
      (wq) * (wk) * rocm_sd::GpuArch::lanes, 1, rocm_sd::FlashParams<rocm_sd::T>) {                   \
    using Cfg = rocm_sd::FlashLargeDCfg<rocm_sd::T, dim, queries, keys, wq, wk, cd, ck, stages>;      \
    rocm_sd::flash_kernel<rocm_sd::FlashLargeD, Cfg>(p);                                              \
  }
#define ROCM_SD_FLASH_LARGE_D_F16(...) ROCM_SD_FLASH_LARGE_D_ENTRY(f16, Half, __VA_ARGS__)
#define ROCM_SD_FLASH_LARGE_D_BF16(...) ROCM_SD_FLASH_LARGE_D_ENTRY(bf16, Bf16, __VA_ARGS__)
