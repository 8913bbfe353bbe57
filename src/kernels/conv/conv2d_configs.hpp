// The configurations of the GPU's convolution, per family: what conv2d.hip instantiates and conv2d_gpu.cpp
// launches.
#pragma once

#include "composable_kernels/tile/config.hpp"

// X(pixels, channels, block_k, waves along pixels, waves along channels, stages, workgroups that a
// compute unit should hold). One family has one configuration of a given pixels x channels x block_k.
// 160 channels: SD's widths 320, 640, 960 ... are multiples of it and not of 128. 16 channels: conv_out.
#define ROCM_SD_CONV_CONFIGS_NVIDIA(X) \
  X(128, 128, 32, 2, 2, 4, 2)          \
  X(128, 128, 64, 2, 2, 3, 2)          \
  X(256, 128, 32, 4, 2, 4, 1)          \
  X(256, 128, 64, 4, 2, 3, 1)          \
  X(128, 256, 64, 2, 4, 3, 1)          \
  X(128, 160, 32, 2, 2, 4, 2)          \
  X(128, 160, 64, 2, 2, 2, 2)          \
  X(256, 160, 32, 4, 2, 4, 1)          \
  X(128, 64, 64, 2, 2, 3, 2)           \
  X(64, 128, 64, 2, 2, 3, 2)           \
  X(64, 160, 64, 2, 2, 3, 2)           \
  X(64, 64, 64, 2, 2, 4, 3)            \
  ROCM_SD_CONV_CONFIGS_FEW(X)
// For few channels, which would leave most of a warpgroup's product idle: all that sm_90 has beside the next.
#define ROCM_SD_CONV_CONFIGS_FEW(X) \
  X(256, 32, 32, 4, 1, 4, 2)        \
  X(256, 16, 32, 4, 1, 4, 2)
// By warpgroup products (conv2d_wgmma.sm_90a.hip).
#define ROCM_SD_CONV_CONFIGS_HOPPER(X) \
  X(128, 256, 64, 8, 1, 4, 1)          \
  X(128, 160, 64, 8, 1, 5, 1)          \
  X(128, 128, 64, 8, 1, 6, 1)          \
  X(256, 128, 64, 16, 1, 4, 1)         \
  X(256, 160, 64, 16, 1, 4, 1)         \
  X(128, 64, 64, 8, 1, 4, 2)           \
  X(64, 160, 64, 4, 1, 7, 1)           \
  X(64, 128, 64, 4, 1, 4, 2)           \
  X(64, 64, 64, 4, 1, 4, 3)
// The same with tiles fetched by TMA (conv2d_tma_*.sm_90a.hip): 128 pixels;
// X(name, channels, stages, workgroups that a compute unit holds).
#define ROCM_SD_CONV_CONFIGS_TMA(X) \
  X(tma, 256, 4, 1)                 \
  X(tma, 160, 6, 1) X(tma, 128, 6, 1) X(tma, 64, 8, 1)
// In turns (TmaPingPongCfg); X(channels, stages).
#define ROCM_SD_CONV_CONFIGS_PING_PONG(X) X(160, 6) X(128, 6) X(64, 8)
// Both with the pixels of all taps fetched at once, where boxes fit the image (TmaHaloCfg); X(channels,
// stages). Other widths lost to those or to the ones above wherever they were tried.
#define ROCM_SD_CONV_CONFIGS_HALO(X) X(160, 8)
#define ROCM_SD_CONV_CONFIGS_HALO_PING_PONG(X) X(160, 8) X(128, 10) X(64, 12)
#define ROCM_SD_CONV_CONFIGS_RDNA(X) \
  X(128, 128, 32, 2, 2, 2, 1)        \
  X(128, 160, 32, 4, 2, 2, 1)        \
  X(128, 64, 32, 2, 2, 2, 1)         \
  X(64, 128, 32, 2, 2, 2, 1)         \
  X(64, 64, 32, 2, 2, 2, 1)          \
  X(256, 32, 32, 4, 1, 2, 1)         \
  X(256, 16, 32, 4, 1, 2, 1)
#define ROCM_SD_CONV_CONFIGS_CDNA(X) \
  X(128, 128, 32, 2, 2, 2, 1)        \
  X(256, 128, 32, 4, 2, 2, 1)        \
  X(128, 160, 32, 2, 2, 2, 1)        \
  X(128, 64, 32, 2, 2, 2, 1)         \
  X(64, 128, 32, 2, 2, 2, 1)         \
  X(64, 64, 64, 2, 2, 2, 1)          \
  X(256, 32, 32, 4, 1, 2, 1)         \
  X(256, 16, 32, 4, 1, 2, 1)
// float, by multiply-adds: every family the same.
#define ROCM_SD_CONV_CONFIGS_F32(X) \
  X(64, 64, 16, 2, 2, 2, 1)         \
  X(128, 16, 16, 4, 1, 2, 1)

namespace rocm_sd {

// Threads of the small kernels: layouts and the reduction of split sums.
constexpr int kConvSmallThreads = 256;

}  // namespace rocm_sd
