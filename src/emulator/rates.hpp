// What AMD compute units can do at best, per target: the rates that bounds are made of. A bound of cycles,
// never a time measured. A card's units, clock and memory, and the peak of 8- and 16-bit matrix instructions,
// are those of the table that predictions use (base/gpu_products.hpp); what only a bound by counting needs
// stands in rates.cpp, each figure with its source.
#pragma once

#include <span>
#include <string_view>

#include "base/gpu_products.hpp"

namespace rocm_sd::emu {

struct CardRates {
  std::string_view target;
  const GpuProduct* card = nullptr;  // the one that stands for the target: units, clock, memory
  int simds = 2;                     // of a compute unit
  int lds_kib = 64;      // of what shares LDS: a work-group processor (RDNA), a compute unit (CDNA)
  int lds_simds = 4;     // SIMDs that share it
  int registers = 1536;  // vector registers of 32 (RDNA) or 64 (CDNA) lanes in a SIMD
  int granule = 24;      // registers are given out in multiples of this
  int most_waves = 16;   // of a SIMD
  // Operations (a multiply-add is two) a clock and compute unit by matrix instructions; 0: none.
  int matrix_16 = 0, matrix_8 = 0, matrix_4 = 0, matrix_f32 = 0, matrix_f64 = 0;
  // Cycles of a wave's instruction in its SIMD.
  int vector = 1, transcendental = 4, wide_multiply = 4, vector_f64 = 16, scalar = 1;
  bool own_transcendental = true;  // beside the vector unit
  bool own_matrix = false;         // beside the vector unit
  // Bytes a clock and compute unit.
  int lds_bytes = 128;
  int cache_bytes = 64;  // vector loads and stores, whole lines
};

// A row for each target that is emulated, in the order of their numbers.
std::span<const CardRates> card_rates();
// Null for a target without a row.
const CardRates* find_rates(std::string_view target);

}  // namespace rocm_sd::emu
