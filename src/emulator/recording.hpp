// What the waves of a workgroup did, in order: the instructions that each ran, and of memory instructions the
// lines that they touched. The time model (timing.hpp) replays it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "emulator/executor.hpp"
#include "emulator/memory_core.hpp"

namespace rocm_sd::emu {

// One execution of an instruction by a wave.
struct Step {
  uint32_t inst = 0;    // index in Program::code
  uint32_t access = 0;  // index in GroupRecord::accesses, plus 1; 0: it touched no memory
};

// What one execution touched.
struct RecordedAccess {
  uint32_t first = 0, lines = 0;  // in GroupRecord::lines
  uint32_t bytes = 0;             // that lanes asked for, in global memory and scratch
  uint32_t lds_cycles = 0;        // that LDS is busy, 128 bytes a cycle, conflicts included
};

struct GroupRecord {
  uint64_t group = 0;  // x first
  std::vector<std::vector<Step>> waves;
  std::vector<RecordedAccess> accesses;
  std::vector<uint64_t> lines;  // numbers of 64-byte lines, distinct and ascending within an access
  bool whole = true;            // false: cut at RecordLimits
};

struct RecordLimits {
  uint64_t steps = 1 << 22;     // of a wave
  uint64_t accesses = 1 << 30;  // to global memory by a wave
  bool cut = false;             // end the record there; otherwise it is an error
};

// Watches a group that runs.
class Recorder {
 public:
  Recorder(const Program& program, GroupRecord& into) : program_(program), into_(into) {}
  void step(const Wave& wave, const Inst& inst);
  void global(const Wave& wave, const Inst& inst, const Pointers& pointers, uint32_t bytes);
  void lds(const Wave& wave, const Inst& inst, const Pointers& pointers, uint32_t bytes);
  void scratch(const Wave& wave, const Pointers& pointers, uint32_t bytes);
  uint64_t global_accesses() const { return global_; }  // so far, by all waves

 private:
  RecordedAccess& access();
  void add_lines(std::span<uint64_t> lines);

  const Program& program_;
  GroupRecord& into_;
  Step* current_ = nullptr;
  uint64_t global_ = 0;
};

// Runs group `index` of the plan, with all that it does to memory. Throws KernelFault for what the kernel did
// wrong, UsageError for a group that passes the limits without `cut` or waits for another group.
GroupRecord record_group(const LaunchPlan& plan, uint64_t index, const RecordLimits& limits = {});

}  // namespace rocm_sd::emu
