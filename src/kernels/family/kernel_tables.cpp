#include "kernels/family/kernel_tables.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

template <class Family>
constexpr KernelTables tables_of() {
  return {.name = Family::kName,
          .index = family_index<Family>(),
          .lds = Family::kLds,
          .values = Family::kValues,
          .pixel_limit = Family::kPixelLimit,
          .part_sums = Family::kPartSums,
          .flash = Family::kFlash,
          .flash_any_mask = Family::kFlashAnyMask,
          .flash_large_d = Family::kFlashLargeD,
          .flash_wgmma = Family::kFlashWgmma,
          .flash_tma = Family::kFlashTma,
          .flash_single_tile_kv = Family::kFlashSingleTileKv,
          .flash_wgmma_large_d = Family::kFlashWgmmaLargeD,
          .gemm = Family::kGemm,
          .geglu = Family::kGeglu,
          .conv = Family::kConv,
          .eight_bit_gemm = Family::kEightBitGemm,
          .eight_bit_geglu = Family::kEightBitGeglu,
          .gemm_f32 = Family::kGemmF32,
          .conv_f32 = Family::kConvF32};
}

template <size_t... i>
constexpr std::array<KernelTables, sizeof...(i)> tables(std::index_sequence<i...>) {
  return {tables_of<std::tuple_element_t<i, KernelFamilies>>()...};
}
constexpr std::array kTables = tables(std::make_index_sequence<kKernelFamilies>());

constexpr const KernelTables* tables_named(std::string_view name) {
  for (const KernelTables& family : kTables)
    if (family.name == name) return &family;
  return nullptr;
}

// A target whose kernels nobody lists does not compile.
static_assert(std::ranges::all_of(kGpuTargets,
                                  [](const GpuTarget& target) {
                                    return tables_named(target.kernels) &&
                                           tables_named(gpu_family_name(target.family));
                                  }),
              "a target of base/gpu_family.hpp has no file in composable_kernels/families");

}  // namespace

std::span<const KernelTables> all_kernel_tables() { return kTables; }

const KernelTables& kernel_tables(const GpuTraits& traits) {
  return *tables_named(kernels_of_target(traits.arch).value_or(gpu_family_name(traits.family)));
}

}  // namespace rocm_sd
