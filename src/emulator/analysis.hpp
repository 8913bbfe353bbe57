// What a counted launch (Options::count) says of a kernel: basic blocks, the hottest loop, how well its
// accesses coalesce, occupancy, and from these and rates.hpp the fewest cycles that a card could take. A
// bound, never a speed: waves are assumed to fill every gap, and memory to answer in time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/gpu.hpp"
#include "emulator/loops.hpp"
#include "emulator/rates.hpp"

namespace rocm_sd::emu {

// Cycles that instructions keep units busy: matrix to scalar are those of SIMDs (each has its own), lds and
// memory those of a compute unit.
struct UnitCycles {
  double matrix = 0, vector = 0, transcendental = 0, scalar = 0, lds = 0, memory = 0;
  void operator+=(const UnitCycles& other);
  // The busiest unit's cycles where one compute unit does all the work, and its name.
  double bound(const CardRates& rates) const;
  std::string_view limit(const CardRates& rates) const;
  // The matrix instructions' part of the bound; 0 where there are none.
  double matrix_share(const CardRates& rates) const;
};

// Cycles of one execution of an instruction by one wave, without what it does in LDS and memory.
UnitCycles issue_cycles(const Inst& inst, std::string_view text, const CardRates& rates, uint32_t lanes);
// Cycles of one matrix instruction in its SIMD. Throws InternalError for a name that has no shape.
double matrix_cycles(const Inst& inst, std::string_view text, const CardRates& rates);

struct Loop {
  std::vector<uint32_t> blocks;  // indices in Analysis::blocks, ascending
  uint32_t header = 0;           // the first instruction of a turn, in Program::code
  uint64_t turns = 0;            // by waves
  ClassCounts executed{};
  UnitCycles cycles;  // of all turns
};

// Waves of the kernel that a SIMD holds at once.
struct Occupancy {
  uint32_t registers = 0;  // of a lane, as they are given out
  uint32_t lds_bytes = 0;  // of a group
  uint32_t waves = 0;      // the least of the two below and of the SIMD's most
  uint32_t by_registers = 0, by_lds = 0;
};

// lds: of a group in bytes, what a launch adds included.
Occupancy occupancy_of(const Target& target, const Kernel& kernel, const CardRates& rates, uint32_t lds,
                       uint64_t waves_of_group);

struct Analysis {
  std::string target, kernel;
  const CardRates* rates = nullptr;
  uint64_t groups = 0, waves_of_group = 0;
  uint32_t lanes = 32;
  std::vector<BasicBlock> blocks;  // that ran
  // The loop that takes most cycles, as far in as one inner loop has half of an outer one's; with no loop
  // that turned, the whole kernel.
  Loop hottest;
  UnitCycles cycles;  // of the launch
  Occupancy occupancy;
  double group_cycles = 0;  // bound of one group that has a compute unit to itself
  // Bounds of the whole card in cycles: by its units, and by its memory if every line crosses it once.
  double card_unit_cycles = 0, card_memory_cycles = 0;
};

// counters: what the launch of this kernel of `code` gave with Options::count. Throws UsageError without
// them.
Analysis analyse(const CodeObject& code, std::string_view kernel, const Launch& launch,
                 const Counters& counters);

}  // namespace rocm_sd::emu
