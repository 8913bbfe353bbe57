// The tables of a GPU family's file (composable_kernels/families) as values, for code that chooses at run
// time.
#pragma once

#include <span>
#include <string_view>

#include "composable_kernels/families/families.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {

struct KernelTables {
  std::string_view name;  // "rdna3", "hopper"
  int index = 0;          // family_index()
  LdsKind lds = LdsKind::kDeclared;
  ValueLayout values = ValueLayout::kRows;
  PixelLimit pixel_limit = PixelLimit::kCount;
  PartSums part_sums = PartSums::kLaunch;
  std::span<const FlashConfig> flash, flash_any_mask;
  std::span<const FlashLargeDConfig> flash_large_d;
  std::span<const FlashWgmmaConfig> flash_wgmma;
  std::span<const FlashTmaConfig> flash_tma;
  std::span<const FlashSingleTileKvConfig> flash_single_tile_kv;
  std::span<const FlashWgmmaLargeDConfig> flash_wgmma_large_d;
  std::span<const GemmConfig> gemm, geglu, conv, eight_bit_gemm, eight_bit_geglu;
  std::span<const GemmConfig> gemm_f32, conv_f32;

  // The workgroups that share a tile sum its parts; else another launch does.
  bool sums_parts() const { return part_sums == PartSums::kWorkgroups; }
  // What a launch asks for beside what the kernel declares.
  uint32_t dynamic_lds(int bytes) const {
    return lds == LdsKind::kDynamic ? static_cast<uint32_t>(bytes) : 0;
  }
};

// Every family, in the order of KernelFamilies.
std::span<const KernelTables> all_kernel_tables();
// Those that the GPU runs: of its target; of a target that the build does not list, of its family.
const KernelTables& kernel_tables(const GpuTraits& traits);

}  // namespace rocm_sd
