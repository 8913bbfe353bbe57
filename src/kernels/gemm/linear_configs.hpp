// The configurations of the GPU's GEMM, per family: what linear.*.hip instantiates and linear_gpu.cpp
// launches.
#pragma once

#include "composable_kernels/tile/config.hpp"

// X(rows, channels, block_k, waves along rows, waves along channels, stages, workgroups that a
// compute unit should hold). One family has one configuration of a given rows x channels x block_k.
// 160 channels: SD's widths 320, 640, 1280 ... are multiples of it, and 2048x1280 makes 128 tiles of them.
#define ROCM_SD_GEMM_CONFIGS_NVIDIA(X) \
  X(128, 128, 32, 2, 2, 4, 2)          \
  X(128, 128, 64, 2, 2, 3, 2)          \
  X(256, 128, 32, 4, 2, 4, 1)          \
  X(256, 128, 64, 4, 2, 3, 1)          \
  X(128, 256, 64, 2, 4, 3, 1)          \
  X(128, 160, 32, 2, 2, 4, 2)          \
  X(128, 160, 64, 4, 2, 3, 1)          \
  X(128, 64, 64, 2, 2, 3, 2)           \
  X(64, 128, 64, 2, 2, 3, 2)           \
  X(64, 160, 64, 2, 2, 3, 2)           \
  X(64, 64, 64, 2, 2, 4, 3)            \
  X(32, 64, 64, 1, 2, 4, 4)
#define ROCM_SD_GEGLU_CONFIGS_NVIDIA(X) \
  X(128, 128, 32, 2, 2, 4, 2)           \
  X(128, 128, 64, 2, 2, 3, 2)           \
  X(256, 128, 64, 4, 2, 3, 1)           \
  X(128, 256, 64, 2, 4, 3, 1)           \
  X(64, 64, 64, 2, 2, 4, 3)
// By warpgroup products (linear_*.sm_90a.hip). Many stages: a product of small depth has most of its loads
// under way from the start.
#define ROCM_SD_GEMM_CONFIGS_HOPPER(X) \
  X(128, 256, 64, 8, 1, 4, 1)          \
  X(256, 128, 64, 16, 1, 4, 1)         \
  X(256, 160, 64, 16, 1, 4, 1)         \
  X(128, 160, 64, 8, 1, 6, 1)          \
  X(128, 128, 64, 8, 1, 3, 2)          \
  X(128, 64, 64, 8, 1, 4, 2)           \
  X(64, 256, 64, 4, 1, 5, 1)           \
  X(64, 160, 64, 4, 1, 3, 2)           \
  X(64, 128, 64, 4, 1, 4, 2)           \
  X(64, 64, 64, 4, 1, 6, 2)
#define ROCM_SD_GEGLU_CONFIGS_HOPPER(X) \
  X(128, 256, 64, 8, 1, 4, 1)           \
  X(256, 128, 64, 16, 1, 4, 1)          \
  X(128, 128, 64, 8, 1, 3, 2)           \
  X(64, 256, 64, 4, 1, 5, 1)            \
  X(64, 128, 64, 4, 1, 4, 2)            \
  X(64, 64, 64, 4, 1, 6, 2)
// The same with tiles fetched by TMA (linear_tma_*.sm_90a.hip): 128 rows;
// X(name, channels, stages, workgroups that a compute unit holds).
#define ROCM_SD_GEMM_CONFIGS_TMA(X) \
  X(tma, 256, 4, 1)                 \
  X(tma, 160, 6, 1) X(tma, 128, 6, 1) X(tma, 64, 8, 1)
#define ROCM_SD_GEGLU_CONFIGS_TMA(X) X(tma, 256, 4, 1) X(tma, 128, 6, 1)
// In turns (TmaPingPongCfg); X(channels, stages).
#define ROCM_SD_GEMM_CONFIGS_PING_PONG(X) X(128, 6) X(160, 6)
#define ROCM_SD_GEGLU_CONFIGS_PING_PONG(X) X(128, 6)
#define ROCM_SD_GEMM_CONFIGS_RDNA(X) \
  X(128, 128, 32, 2, 2, 2, 1)        \
  X(128, 160, 32, 4, 2, 2, 1)        \
  X(128, 64, 32, 2, 2, 2, 1)         \
  X(64, 128, 32, 2, 2, 2, 1)         \
  X(64, 64, 32, 2, 2, 2, 1)          \
  X(32, 64, 64, 1, 2, 2, 1)
#define ROCM_SD_GEGLU_CONFIGS_RDNA(X) \
  X(128, 128, 32, 2, 2, 2, 1)         \
  X(64, 64, 32, 2, 2, 2, 1)
#define ROCM_SD_GEMM_CONFIGS_CDNA(X) \
  X(128, 128, 32, 2, 2, 1, 1)        \
  X(256, 128, 32, 4, 2, 1, 1)        \
  X(128, 160, 32, 2, 2, 1, 1)        \
  X(128, 64, 32, 2, 2, 2, 1)         \
  X(64, 128, 32, 2, 2, 2, 1)         \
  X(64, 64, 64, 2, 2, 1, 1)          \
  X(32, 64, 64, 1, 2, 2, 1)
#define ROCM_SD_GEGLU_CONFIGS_CDNA(X) \
  X(128, 128, 32, 2, 2, 1, 1)         \
  X(256, 128, 32, 4, 2, 1, 1)         \
  X(64, 64, 64, 2, 2, 1, 1)
// float, by multiply-adds: every family the same.
#define ROCM_SD_GEMM_CONFIGS_F32(X) \
  X(64, 64, 16, 2, 2, 2, 1)         \
  X(32, 32, 16, 1, 2, 2, 1)

namespace rocm_sd {

constexpr int kGemvWaves = 4;  // of a workgroup
constexpr int kGemmReduceThreads = 256;

}  // namespace rocm_sd
