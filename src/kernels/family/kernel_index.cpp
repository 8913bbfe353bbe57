#include "kernels/family/kernel_index.hpp"

#include <map>

#include "base/error.hpp"
#include "kernels/family/gemm_map.hpp"
#include "kernels/family/kernel_tables.hpp"

namespace rocm_sd {
namespace {

constexpr const char* kTypes[] = {"f16", "bf16"};

struct Index {
  std::map<std::string, KernelTile, std::less<>> tiles;        // by the kernel's name
  std::map<std::string, std::string, std::less<>> of_choices;  // kernels' names by "op type choice"

  Index() {
    for (const KernelTables& family : all_kernel_tables()) {
      for (const char* type : kTypes) add(family, type);
      add("gemm_", family.gemm_f32, "f32");
      add("geglu_", family.gemm_f32, "f32");
      add("conv_", family.conv_f32, "f32");
    }
  }

 private:
  void add(const KernelTables& family, const char* type) {
    const auto add_flash = [&](const auto& table, const auto& queries, auto... mask) {
      for (const auto& config : table)
        tiles[kernel_name(config, type, mask...).c_str()] = {queries(config), 0};
    };
    const auto of_waves = [](const FlashConfig& c) { return c.queries * c.waves; };
    const auto of_warpgroups = [](const auto& c) { return 64 * c.warpgroups; };
    const auto of_tile = [](const auto& c) { return c.queries; };
    add_flash(family.flash, of_waves, FlashMask::kNone);
    add_flash(family.flash_any_mask, of_waves, FlashMask::kAny);
    add_flash(family.flash_wgmma, of_warpgroups);
    add_flash(family.flash_tma, of_warpgroups);
    add_flash(family.flash_single_tile_kv, [](const FlashSingleTileKvConfig&) { return 64; });
    add_flash(family.flash_large_d, of_tile);
    add_flash(family.flash_wgmma_large_d, of_tile);
    add("gemm_", family.gemm, type);
    add("geglu_", family.geglu, type);
    add("conv_", family.conv, type);
    for (const char* eight : {"i8", "f8e4m3"}) {
      const std::string types = concat(eight, "_", type);
      for (const auto& [op, table] :
           {std::pair("gemm_", family.eight_bit_gemm), {"geglu_", family.eight_bit_geglu}})
        for (const GemmConfig& c : table)
          tiles[kernel_name(c, op, types.c_str(), uses_tma(c.algorithm) ? 2 : 1).c_str()] = {c.shape.block_m,
                                                                                             c.shape.block_n};
    }
  }

  void add(const char* op, std::span<const GemmConfig> table, const char* type) {
    for (const GemmConfig& config : table) {
      const std::string name = kernel_name(config, op, type).c_str();
      tiles[name] = {config.shape.block_m, config.shape.block_n};
      const std::string choice = concat(op, " ", type, " ", describe(config));
      if (!uses_tma(config.algorithm)) of_choices[choice] = name;
      if (uses_tma(config.algorithm))
        for (const int multicast_size : {1, 2}) of_choices[concat(choice, multicast_size)] = name;
    }
  }
};

const Index& kernel_index() {
  static const Index instance;
  return instance;
}

}  // namespace

KernelTile tile_of_kernel_named(std::string_view kernel) {
  const auto& tiles = kernel_index().tiles;
  const auto found = tiles.find(kernel);
  return found == tiles.end() ? KernelTile{} : found->second;
}

std::string gemm_kernel_of_choice(std::string_view op, std::string_view choice, std::string_view type) {
  const auto& of_choices = kernel_index().of_choices;
  const auto found = of_choices.find(concat(op, " ", type, " ", choice));
  return found == of_choices.end() ? std::string() : found->second;
}

}  // namespace rocm_sd
