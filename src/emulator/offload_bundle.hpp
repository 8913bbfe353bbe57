// Offload bundles: what hipcc --genco writes, code objects of several targets in one file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace rocm_sd::emu {

struct BundledObject {
  std::string target;  // gfx90a, without features
  std::span<const std::byte> bytes;
};

bool is_offload_bundle(std::span<const std::byte> file);

// The AMD GPU code objects of a bundle, views into `file`. Throws FormatError naming `what`.
std::vector<BundledObject> read_offload_bundle(std::span<const std::byte> file, const std::string& what);

}  // namespace rocm_sd::emu
