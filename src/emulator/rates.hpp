// What AMD cards can do at best, per target: the rates that bounds are made of. A bound of cycles, never a
// time measured. Each figure names its source:
//   [specs]  ROCm's table of accelerators and GPUs (gpu-specs) and the product pages: units, clocks,
//   bandwidth [peak]   published peak rates divided by units and boost clock [isa]    the "RDNA3" and "RDNA4"
//   ISA documents (LDS: 32 banks of a dword for each pair of SIMDs), and the
//            Composable Kernel documentation of LDS bank conflicts (CDNA: 32 banks, phases of lanes)
//   [sched]  LLVM's scheduling models of these targets: transcendental instructions have a unit of their own
//            on gfx11 and gfx12 and occupy the vector unit on gfx9; passes of MFMA
//   [guess]  no public figure: the best that is plausible, so that the bound stays a bound
#pragma once

#include <array>
#include <string_view>

namespace rocm_sd::emu {

struct CardRates {
  std::string_view target, product;
  // [specs]
  int units = 1;  // compute units
  double ghz = 1;
  double memory_gbs = 1;  // of the card's memory
  int simds = 2;          // of a compute unit
  int lds_kib = 64;       // of what shares LDS: a work-group processor (RDNA), a compute unit (CDNA)
  int lds_simds = 4;      // SIMDs that share it
  int registers = 1536;   // vector registers of 32 (RDNA) or 64 (CDNA) lanes in a SIMD
  int granule = 24;       // registers are given out in multiples of this
  int most_waves = 16;    // of a SIMD
  // Operations (a multiply-add is two) a clock and compute unit by matrix instructions [peak]; 0: none.
  int matrix_16 = 512, matrix_8 = 512, matrix_4 = 1024, matrix_f32 = 0, matrix_f64 = 0;
  // Cycles of a wave's instruction in its SIMD [peak, sched].
  int vector = 1, transcendental = 4, wide_multiply = 4, vector_f64 = 16, scalar = 1;
  bool own_transcendental = true;  // beside the vector unit
  bool own_matrix = false;         // beside the vector unit
  // Bytes a clock and compute unit.
  int lds_bytes = 128;   // [isa]
  int cache_bytes = 64;  // vector loads and stores, whole lines [guess: first-level cache, 64 bytes a clock]
};

namespace detail {
constexpr CardRates rdna(std::string_view target, std::string_view product, int units, double ghz, double gbs,
                         bool full, bool fourth) {
  CardRates r{target, product, units, ghz, gbs};
  r.lds_kib = 128;
  if (!full) r.registers = 1024, r.granule = 16;
  if (fourth) r.matrix_16 = 1024, r.matrix_8 = 2048, r.matrix_4 = 4096;
  return r;
}
constexpr CardRates cdna(std::string_view target, std::string_view product, int units, double ghz, double gbs,
                         bool third) {
  CardRates r{target, product, units, ghz, gbs};
  r.simds = r.lds_simds = 4;
  r.registers = 512;
  r.granule = r.most_waves = 8;
  r.matrix_16 = third ? 2048 : 1024;
  r.matrix_8 = third ? 4096 : 1024;
  r.matrix_4 = 0;
  r.matrix_f32 = r.matrix_f64 = 256;
  r.vector = 4;  // 64 lanes on 16 wide
  r.transcendental = r.wide_multiply = 16;
  r.vector_f64 = 4;
  r.scalar = 4;  // one scalar unit, each SIMD's turn every fourth cycle
  r.own_transcendental = false;
  r.own_matrix = true;
  return r;
}
}  // namespace detail

// The first row of a target is the one that a bound is made for.
inline constexpr std::array kCardRates = {
    detail::rdna("gfx1100", "Radeon RX 7900 XTX", 96, 2.498, 960, true, false),
    detail::rdna("gfx1101", "Radeon RX 7800 XT", 60, 2.430, 624, true, false),
    detail::rdna("gfx1102", "Radeon RX 7600", 32, 2.655, 288, false, false),
    detail::rdna("gfx1103", "Radeon 780M", 12, 2.700, 90, false, false),
    detail::rdna("gfx1150", "Radeon 890M", 16, 2.900, 120, false, false),
    detail::rdna("gfx1151", "Radeon 8060S", 40, 2.900, 256, true, false),
    detail::rdna("gfx1200", "Radeon RX 9060 XT", 32, 3.130, 320, true, true),
    detail::rdna("gfx1201", "Radeon RX 9070 XT", 64, 2.970, 640, true, true),
    detail::cdna("gfx90a", "Instinct MI250X, one die", 110, 1.700, 1638, false),
    detail::cdna("gfx940", "Instinct MI300A", 228, 2.100, 5300, true),
    detail::cdna("gfx942", "Instinct MI300X", 304, 2.100, 5300, true),
};

// Null for a target without a row.
constexpr const CardRates* find_rates(std::string_view target) {
  for (const CardRates& r : kCardRates)
    if (r.target == target) return &r;
  return nullptr;
}

}  // namespace rocm_sd::emu
