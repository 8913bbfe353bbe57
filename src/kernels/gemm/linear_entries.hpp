// The entry points of linear's GPU kernels: included by the .hip files only, once per storage type each.
// Problem, mapping, traffic, numerics, limits: composable_kernels/fused/gemm.hpp and gemv.hpp.
#pragma once

#include "composable_kernels/arch/target.hpp"
#include "composable_kernels/fused/gemm.hpp"
#include "composable_kernels/fused/gemv.hpp"
#include "kernels/gemm/linear_configs.hpp"

// prefix: gemm_f16, or geglu_f16 with kGated true.
#define ROCM_SD_GEMM_ENTRY(prefix, Storage, kGated, m, n, k, waves_m, waves_n, stages, groups)             \
  ROCM_SD_KERNEL(prefix##_##m##x##n##x##k, (waves_m) * (waves_n) * rocm_sd::GpuArch::lanes, groups,        \
                 rocm_sd::GemmParams<Storage>) {                                                           \
    using namespace rocm_sd;                                                                               \
    using Cfg = TileCfg<GpuArch, Storage, TileShape{m, n, k, waves_m, waves_n, stages}>;                   \
    gemm_body<GpuArch, Cfg, kGated>(p, static_cast<int>(GpuArch::group_x()),                               \
                                    static_cast<int>(GpuArch::group_y()), GpuArch::lds<Cfg::kLdsBytes>()); \
  }

// The same by Hopper's warpgroup products.
#define ROCM_SD_WGMMA_ENTRY(prefix, Storage, kGated, m, n, k, waves_m, waves_n, stages, groups)     \
  ROCM_SD_KERNEL(prefix##_##m##x##n##x##k, (waves_m) * (waves_n) * rocm_sd::GpuArch::lanes, groups, \
                 rocm_sd::GemmParams<Storage>) {                                                    \
    using namespace rocm_sd;                                                                        \
    using Cfg = WgmmaCfg<Storage, TileShape{m, n, k, waves_m, waves_n, stages}>;                    \
    gemm_body<GpuArch, Cfg, kGated, WgmmaProduct<Cfg>>(p, static_cast<int>(GpuArch::group_x()),     \
                                                       static_cast<int>(GpuArch::group_y()),        \
                                                       GpuArch::lds<Cfg::kLdsBytes>());             \
  }

// The same with tiles fetched by TMA; the file includes composable_kernels/hopper/gemm_tma.hpp.
#define ROCM_SD_TMA_ENTRY_OF(op, name, suffix, Storage, kGated, n, groups, ...)                        \
  ROCM_SD_TMA_KERNEL(op##_##name##_##suffix##_128x##n##x64, groups, rocm_sd::TmaGemmParams<Storage>) { \
    using namespace rocm_sd;                                                                           \
    using Cfg = __VA_ARGS__;                                                                           \
    gemm_tma_body<Cfg, kGated>(p, static_cast<int>(GpuArch::group_x()),                                \
                               static_cast<int>(GpuArch::groups_x()), GpuArch::lds<Cfg::kLdsBytes>()); \
  }
#define ROCM_SD_TMA_ENTRY(op, suffix, Storage, kGated, name, n, stages, groups) \
  ROCM_SD_TMA_ENTRY_OF(op, name, suffix, Storage, kGated, n, groups, TmaCfg<Storage, n, stages, groups>)
#define ROCM_SD_PING_PONG_ENTRY(op, suffix, Storage, kGated, n, stages) \
  ROCM_SD_TMA_ENTRY_OF(op, ping_pong, suffix, Storage, kGated, n, 1, TmaPingPongCfg<Storage, n, stages>)

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
