// What a GPU family's file holds: its traits, and the configurations of its kernels as tables that the host
// chooses from and the .hip files instantiate. A family derives from these defaults and states the rest.
#pragma once

#include <array>
#include <cstddef>

#include "composable_kernels/families/flash_config.hpp"
#include "composable_kernels/families/gemm_config.hpp"

namespace rocm_sd {

// Two tables, one after the other.
template <class Row, size_t kFirst, size_t kSecond>
constexpr std::array<Row, kFirst + kSecond> joined(const std::array<Row, kFirst>& a,
                                                   const std::array<Row, kSecond>& b) {
  std::array<Row, kFirst + kSecond> out{};
  for (size_t i = 0; i < kFirst; ++i) out[i] = a[i];
  for (size_t i = 0; i < kSecond; ++i) out[kFirst + i] = b[i];
  return out;
}

// The kernel declares its LDS, or the launch says how much it takes.
enum class LdsKind { kDeclared, kDynamic };
// How flash attention keeps values in LDS: row by row, or transposed.
enum class ValueLayout { kRows, kTransposed };

// What bounds the input of a convolution: the number of its pixels, or of its pieces of 16 bytes, which the
// offsets of buffer loads count.
enum class PixelLimit { kCount, kPieces };

// What sums the parts of a tile that several workgroups share: these, or another launch.
enum class PartSums { kLaunch, kWorkgroups };

// Each family states kName, kLds, kValues, kPixelLimit, kFlash, kFlashAnyMask, kFlashLargeD, kGemm,
// kGeglu, kConv: best first. A rows x columns x depth that has two configurations in one table differs in
// algorithm.
struct KernelFamilyDefaults {
  static constexpr PartSums kPartSums = PartSums::kLaunch;

  // By multiply-adds: every family the same.
  static constexpr auto kGemmF32 = std::to_array<GemmConfig>({
      {.shape = {.block_m = 64, .block_n = 64, .block_k = 16, .waves_m = 2, .waves_n = 2}},
      {.shape = {.block_m = 32, .block_n = 32, .block_k = 16, .waves_n = 2}},
  });
  static constexpr auto kConvF32 = std::to_array<GemmConfig>({
      {.shape = {.block_m = 64, .block_n = 64, .block_k = 16, .waves_m = 2, .waves_n = 2}},
      {.shape = {.block_m = 128, .block_n = 16, .block_k = 16, .waves_m = 4}},
  });

  // What not every family has.
  static constexpr std::array<FlashWgmmaConfig, 0> kFlashWgmma{};
  static constexpr std::array<FlashTmaConfig, 0> kFlashTma{};
  static constexpr std::array<FlashSingleTileKvConfig, 0> kFlashSingleTileKv{};
  static constexpr std::array<FlashWgmmaLargeDConfig, 0> kFlashWgmmaLargeD{};
  static constexpr std::array<GemmConfig, 0> kEightBitGemm{}, kEightBitGeglu{};
};

// What AMD's families have in common.
struct AmdFamily : KernelFamilyDefaults {
  static constexpr PartSums kPartSums = PartSums::kWorkgroups;
  static constexpr LdsKind kLds = LdsKind::kDeclared;
  static constexpr ValueLayout kValues = ValueLayout::kTransposed;
  static constexpr PixelLimit kPixelLimit = PixelLimit::kPieces;
  static constexpr auto kFlashLargeD = std::to_array<FlashLargeDConfig>({
      {.head_dim = 512,
       .queries = 32,
       .keys = 64,
       .waves_q = 2,
       .waves_k = 4,
       .chunk_dim = 128,
       .chunk_keys = 16},
  });
};

}  // namespace rocm_sd
