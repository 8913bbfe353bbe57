// The GPU families that kernels are written for, and the targets of each. One family is one header of
// composable_kernels/arch and one set of configurations.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rocm_sd {

enum class GpuFamily : uint8_t { kRdna3, kRdna4, kCdna3, kNvidia };

struct GpuTarget {
  std::string_view arch;  // "gfx1100", "sm_90": what the compiler calls it
  GpuFamily family;
  std::string_view kernels;  // the file of composable_kernels/families that lists its kernels
};

// Every target that the build knows: cmake/archs.cmake reads these lines. The first of each family is the one
// that ROCM_SD_ARCHS=auto compiles.
// clang-format off
inline constexpr std::array kGpuTargets = {
    GpuTarget{"gfx1100", GpuFamily::kRdna3, "rdna3"},
    GpuTarget{"gfx1101", GpuFamily::kRdna3, "rdna3"},
    GpuTarget{"gfx1102", GpuFamily::kRdna3, "rdna3"},
    GpuTarget{"gfx1150", GpuFamily::kRdna3, "rdna3"},
    GpuTarget{"gfx1151", GpuFamily::kRdna3, "rdna3"},
    GpuTarget{"gfx1201", GpuFamily::kRdna4, "rdna4"},
    GpuTarget{"gfx1200", GpuFamily::kRdna4, "rdna4"},
    GpuTarget{"gfx942", GpuFamily::kCdna3, "cdna3"},
    GpuTarget{"gfx90a", GpuFamily::kCdna3, "cdna3"},
    GpuTarget{"gfx950", GpuFamily::kCdna3, "cdna3"},
    GpuTarget{"sm_90", GpuFamily::kNvidia, "hopper"},
    GpuTarget{"sm_80", GpuFamily::kNvidia, "nvidia"},
    GpuTarget{"sm_86", GpuFamily::kNvidia, "nvidia"},
    GpuTarget{"sm_89", GpuFamily::kNvidia, "nvidia"},
};
// clang-format on

constexpr std::optional<GpuFamily> gpu_family(std::string_view arch) {
  for (const GpuTarget& target : kGpuTargets)
    if (target.arch == arch) return target.family;
  return std::nullopt;
}

// Lanes of a wave.
constexpr int wave_lanes(GpuFamily family) { return family == GpuFamily::kCdna3 ? 64 : 32; }

// Of a target that is not listed: nothing.
constexpr std::optional<std::string_view> kernels_of_target(std::string_view arch) {
  for (const GpuTarget& target : kGpuTargets)
    if (target.arch == arch) return target.kernels;
  return std::nullopt;
}

constexpr std::string_view gpu_family_name(GpuFamily family) {
  switch (family) {
    case GpuFamily::kRdna3: return "rdna3";
    case GpuFamily::kRdna4: return "rdna4";
    case GpuFamily::kCdna3: return "cdna3";
    case GpuFamily::kNvidia: return "nvidia";
  }
  return "";
}

}  // namespace rocm_sd
