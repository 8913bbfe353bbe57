#include "base/gpu_products.hpp"

#include <array>

#include "base/text.hpp"

namespace rocm_sd {
namespace {

const std::vector<GpuProduct>& products() {
  static const std::vector<GpuProduct> rows = {
      GpuProduct{"RX 7900 XTX", "gfx1100", 96, 2.498, 24, 960, 6, 96},
      GpuProduct{"RX 7900 XT", "gfx1100", 84, 2.395, 20, 800, 6, 80},
      GpuProduct{"RX 7800 XT", "gfx1101", 60, 2.430, 16, 624, 4, 64},
      GpuProduct{"RX 7600", "gfx1102", 32, 2.655, 8, 288, 2, 32},
      GpuProduct{"Radeon PRO W7900", "gfx1100", 96, 2.495, 48, 864, 6, 96},
      GpuProduct{"RX 9070 XT", "gfx1201", 64, 2.970, 16, 640, 8, 64},
      GpuProduct{"RX 9070", "gfx1201", 56, 2.520, 16, 640, 8, 64},
      GpuProduct{"RX 9060 XT", "gfx1200", 32, 3.130, 16, 320, 4, 32},
      GpuProduct{"Radeon 890M", "gfx1150", 16, 2.900, 16, 120, 2, 0},
      GpuProduct{"Radeon 8060S", "gfx1151", 40, 2.900, 96, 256, 2, 32},
      GpuProduct{"MI210", "gfx90a", 104, 1.700, 64, 1638, 8, 0},
      GpuProduct{"MI250X GCD", "gfx90a", 110, 1.700, 64, 1638, 8, 0},
      GpuProduct{"MI300A", "gfx942", 228, 2.100, 128, 5300, 24, 256},
      GpuProduct{"MI300X", "gfx942", 304, 2.100, 192, 5300, 32, 256},
      GpuProduct{"MI325X", "gfx942", 304, 2.100, 256, 6000, 32, 256},
      GpuProduct{"MI350X", "gfx950", 256, 2.200, 288, 8000, 32, 256},
      GpuProduct{"MI355X", "gfx950", 256, 2.400, 288, 8000, 32, 256},
      GpuProduct{"RTX 4090", "sm_89", 128, 2.520, 24, 1008, 72, 0},
      GpuProduct{"RTX 5090", "sm_120", 170, 2.407, 32, 1792, 96, 0},
      GpuProduct{"H100 SXM", "sm_90", 132, 1.830, 80, 3350, 50, 0},
      GpuProduct{"H200 SXM", "sm_90", 132, 1.830, 141, 4800, 50, 0},
  };
  return rows;
}

// RDNA 3's f32 counts dual issue; its int8 is no faster than f16.
constexpr std::array kRates = {
    ArchRates{"gfx110", 256, 512, 0, 512, 65536},      ArchRates{"gfx115", 256, 512, 0, 512, 65536},
    ArchRates{"gfx120", 256, 1024, 2048, 2048, 65536}, ArchRates{"gfx90a", 128, 1024, 0, 1024, 65536},
    ArchRates{"gfx942", 256, 2048, 4096, 4096, 65536}, ArchRates{"gfx950", 256, 4096, 8192, 8192, 163840},
    ArchRates{"sm_80", 128, 2048, 0, 4096, 166912},    ArchRates{"sm_86", 256, 512, 0, 1024, 101376},
    ArchRates{"sm_89", 256, 512, 1024, 2048, 101376},  ArchRates{"sm_90", 256, 4096, 8192, 8192, 232448},
    ArchRates{"sm_120", 256, 512, 1024, 2048, 101376},
};

}  // namespace

const std::vector<GpuProduct>& gpu_products() { return products(); }
std::span<const ArchRates> arch_rates() { return kRates; }

const GpuProduct* find_gpu_product(std::string_view name) {
  const std::string wanted = letters_and_digits(name);
  for (const GpuProduct& product : products())
    if (letters_and_digits(product.name) == wanted) return &product;
  return nullptr;
}

int driver_compute_units(const GpuProduct& gpu) {
  const bool rdna = gpu.arch.starts_with("gfx1");
  return rdna ? gpu.compute_units / 2 : gpu.compute_units;
}

int gpu_chiplets(std::string_view arch, int compute_units) {
  const int each = arch == "gfx942" ? 38 : arch == "gfx950" ? 32 : 0;
  return each > 0 && compute_units > 0 && compute_units % each == 0 ? compute_units / each : 1;
}

const ArchRates* find_arch_rates(std::string_view arch) {
  for (const ArchRates& rates : kRates)
    if (arch == rates.arch || (rates.arch.starts_with("gfx1") && arch.starts_with(rates.arch))) return &rates;
  return nullptr;
}

double peak_rate(const GpuProduct& gpu, RateType type) {
  const ArchRates* rates = find_arch_rates(gpu.arch);
  if (!rates) return 0;
  const int per_clock = type == RateType::kF32   ? rates->f32
                        : type == RateType::kF16 ? rates->f16
                        : type == RateType::kF8  ? rates->f8
                                                 : rates->i8;
  return per_clock * gpu.gigahertz * 1e9 * gpu.compute_units;
}

}  // namespace rocm_sd
