// Sources of the figures:
//   [isa]    the "RDNA3", "RDNA4", "CDNA2" and "CDNA3" instruction set documents: SIMDs, LDS of 32 banks of a
//            dword for each pair of SIMDs; Composable Kernel's documentation of LDS bank conflicts (CDNA)
//   [llvm]   AMDGPUUsage and LLVM's AMDGPU subtarget: registers, granules and waves of a SIMD
//   [sched]  LLVM's scheduling models of these targets: transcendental instructions have a unit of their own
//   on
//            gfx11 and gfx12 and occupy the vector unit on gfx9; cycles of f64 and of wide multiplies
//   [peak]   the makers' published peak rates divided by units and boost clock
//   [guess]  no public figure: the best that is plausible, so that the bound stays a bound
#include "emulator/rates.hpp"

#include <array>

#include "base/error.hpp"

namespace rocm_sd::emu {

namespace {

CardRates base_rates(std::string_view target, const char* card) {
  CardRates r{.target = target, .card = find_gpu_product(card)};
  require<InternalError>(r.card != nullptr, "no such card: ", card);
  const ArchRates* peak = find_arch_rates(r.card->arch);
  require<InternalError>(peak != nullptr, "no rates of ", r.card->arch);
  r.matrix_16 = peak->f16;  // [peak]
  r.matrix_8 = peak->i8;    // [peak]
  r.cache_bytes = 64;       // [guess]: the first-level cache, 64 bytes a clock
  return r;
}

CardRates rdna(std::string_view target, const char* card, bool full) {
  CardRates r = base_rates(target, card);
  r.lds_kib = 128;                                                       // [isa]
  if (!full) r.registers = 1024, r.granule = 16;                         // [llvm]
  r.matrix_4 = 2 * r.matrix_16 * (target.starts_with("gfx12") ? 2 : 1);  // [peak]
  return r;
}

CardRates cdna(std::string_view target, const char* card) {
  CardRates r = base_rates(target, card);
  r.simds = r.lds_simds = 4;  // [isa]
  r.registers = 512;          // [llvm], as the next line
  r.granule = r.most_waves = 8;
  r.matrix_f32 = r.matrix_f64 = 256;        // [peak]
  r.vector = 4;                             // [isa]: 64 lanes on 16 wide
  r.transcendental = r.wide_multiply = 16;  // [sched], as the next three lines
  r.vector_f64 = 4;
  r.own_transcendental = false;
  r.own_matrix = true;
  r.scalar = 4;  // [isa]: one scalar unit, each SIMD's turn every fourth cycle
  return r;
}

}  // namespace

std::span<const CardRates> card_rates() {
  // gfx1103 and gfx940 have no card in the table: the nearest kin stands for them.
  static const std::array rows = {
      rdna("gfx1100", "RX 7900 XTX", true),
      rdna("gfx1101", "RX 7800 XT", true),
      rdna("gfx1102", "RX 7600", false),
      rdna("gfx1103", "Radeon 890M", false),
      rdna("gfx1150", "Radeon 890M", false),
      rdna("gfx1151", "Radeon 8060S", true),
      rdna("gfx1200", "RX 9060 XT", true),
      rdna("gfx1201", "RX 9070 XT", true),
      cdna("gfx90a", "MI250X GCD"),
      cdna("gfx940", "MI300A"),
      cdna("gfx942", "MI300X"),
  };
  return rows;
}

const CardRates* find_rates(std::string_view target) {
  for (const CardRates& r : card_rates())
    if (r.target == target) return &r;
  return nullptr;
}

}  // namespace rocm_sd::emu
