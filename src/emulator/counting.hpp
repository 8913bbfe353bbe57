// What launches count where they are asked to (Options::count): how well global accesses coalesce, and the
// cycles that LDS accesses take by the family's bank rule.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "emulator/memory_core.hpp"

namespace rocm_sd::emu {

// Accesses to memory by one instruction, summed over its executions.
struct AccessCount {
  uint64_t executions = 0;             // with a lane that accessed global memory
  uint64_t lines64 = 0, lines128 = 0;  // distinct lines that each execution touched
  uint64_t useful = 0;                 // bytes that lanes asked for
  uint64_t lds_cycles = 0;             // that LDS is busy
  uint64_t lds_conflicts = 0;          // of these, how many only because lanes met in a bank
  uint64_t lds_bytes = 0;              // that lanes asked for

  void operator+=(const AccessCount& other);
};

// Distinct 64-byte lines of a launch: what must cross the card's memory at least once.
struct DistinctLines {
  uint64_t read = 0, written = 0;
};

// Accesses of one host thread's share of a launch.
class AccessMeter {
 public:
  AccessMeter(const Program& program, std::span<const Range> ranges);
  // Lanes that point into LDS or scratch (flat instructions) are left out.
  void global(const Wave& wave, const Inst& inst, const Pointers& pointers, uint32_t bytes);
  void lds(const Wave& wave, const Inst& inst, const Pointers& pointers, uint32_t bytes);

  std::vector<AccessCount> counts;  // by index in Program::code

  // Adds another thread's lines to this one's.
  void join(const AccessMeter& other);
  DistinctLines distinct() const;

 private:
  void mark(uint64_t line, bool write);

  const Inst* first_;
  bool cdna_;
  std::span<const Range> ranges_;
  std::vector<uint64_t> first_bit_;       // of each range in the two below
  std::vector<uint64_t> read_, written_;  // a bit for each line
  size_t last_range_ = 0;
};

// Cycles of LDS for one access of `bytes` bytes a lane: lanes come in phases of 32 dwords, and a phase takes
// as many cycles as its fullest bank has different dwords. `least`: without conflicts.
struct LdsCycles {
  uint32_t cycles = 0, least = 0;
};
// offset [64] in bytes, of the lanes in `active` [2]; wide reads of CDNA pair distant lanes.
LdsCycles lds_cycles(std::span<const uint32_t, 64> offset, const uint32_t (&active)[2], uint32_t bytes,
                     bool cdna_read);

}  // namespace rocm_sd::emu
