// Sizes of the Winograd convolution that its kernel and the host share (fused/winograd.hpp).
#pragma once

#include <string_view>

namespace rocm_sd {

// A tile: 4x4 input pixels, 2x2 output pixels, whose 16 products are the planes.
constexpr int kWinogradPlanes = 16, kWinogradDepth = 32;  // planes; channels of a step

// Of a workgroup: tiles and output channels that it makes, and its waves, each of which has whole planes.
struct WinogradShape {
  int tiles, channels, waves;
};

// Of a family (its kName). 64 tiles x 64 channels of 16 planes are 256 KiB of sums: a third of the registers
// of a work-group processor, an eighth of what a compute unit of CDNA has beside its accumulation registers,
// and twice what NVIDIA's compilers give to 256 threads.
constexpr WinogradShape winograd_shape(std::string_view family) {
  if (family == "cdna3") return {64, 64, 8};
  if (family == "nvidia" || family == "hopper") return {32, 64, 8};
  return {32, 64, 8};
}

template <WinogradShape kShapeOf>
struct WinogradCfg {
  static constexpr WinogradShape kShape = kShapeOf;
  static constexpr int kTiles = kShape.tiles, kChannels = kShape.channels, kWaves = kShape.waves;
  static constexpr int kWavePlanes = kWinogradPlanes / kWaves;
  static constexpr int kPlane = kTiles * kWinogradDepth;       // elements of a plane's operand in LDS
  static constexpr int kStageTiles = 16, kStageChannels = 32;  // whose sums pass through LDS at once
  static constexpr int kStages = kTiles / kStageTiles * (kChannels / kStageChannels);
  static constexpr int kOperandBytes = kWinogradPlanes * kPlane * 2;
  static constexpr int kStageBytes = kWinogradPlanes * kStageTiles * kStageChannels * 4;
  static constexpr int kLdsBytes = kOperandBytes > kStageBytes ? kOperandBytes : kStageBytes;
  static_assert(kWavePlanes * kWaves == kWinogradPlanes && kTiles % 16 == 0 && kChannels % 32 == 0);
};

}  // namespace rocm_sd
