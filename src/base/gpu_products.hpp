// The GPUs that people have: what their makers state of them. Rates follow from the architecture.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rocm_sd {

struct GpuProduct {
  std::string name;                     // "RX 7900 XTX"
  std::string arch;                     // "gfx1100"
  int compute_units = 0;                // on NVIDIA: SMs
  double gigahertz = 0;                 // boost clock
  double memory_gb = 0;                 // 10^9 bytes as its maker counts (GiB in the driver's)
  double bandwidth = 0;                 // of the memory, GB/s
  double l2_mb = 0, last_level_mb = 0;  // Infinity Cache; 0: none
};

// Dense floating-point (and 8-bit integer) operations a clock of one compute unit, 2 per multiply-add, with
// fp32 accumulation. 0: there is no such instruction.
struct ArchRates {
  std::string_view arch;  // a target, or the beginning of several targets' names
  int f32 = 0, f16 = 0, f8 = 0, i8 = 0;
  int lds_bytes = 0;  // that one workgroup may ask for
};

// Rows by family, the largest first. Compute units, caches and memory of AMD's: ROCm's documentation ("GPU
// hardware specifications"); clocks, bandwidths and NVIDIA's rows: the makers' product pages.
const std::vector<GpuProduct>& gpu_products();
// Per-clock rates: AMD's instruction set and CDNA architecture documents, NVIDIA's architecture papers.
std::span<const ArchRates> arch_rates();

// The row whose name is this, upper and lower case and blanks alike ("rx7900xtx"); null where there is none.
const GpuProduct* find_gpu_product(std::string_view name);
// As drivers count: on RDNA a work-group processor of two compute units counts as one.
int driver_compute_units(const GpuProduct& gpu);
// Chiplets with an L2 each, among which the GPU deals out workgroups in turn: XCDs of the MI300 and MI350
// series (38 and 32 compute units each; AMD's CDNA 3 and 4 white papers). 1: one L2. compute_units: of the
// device as the driver counts, so that partitions (CPX and the like) have as many as they have.
int gpu_chiplets(std::string_view arch, int compute_units);
// Null for an architecture that is not listed.
const ArchRates* find_arch_rates(std::string_view arch);

enum class RateType : uint8_t { kF32, kF16, kF8, kI8 };
// Peak rate in FLOP/s; 0 where the architecture has no such instruction or is unknown.
double peak_rate(const GpuProduct& gpu, RateType type);

}  // namespace rocm_sd
