// Everything that Options::check looks for, for the groups that one host thread runs: waits, hazards,
// barriers, and memory that was never written. What it finds is thrown as KernelFault. docs/emulator.md
// states the rules.
#pragma once

#include <cstdint>
#include <vector>

#include "emulator/hazards.hpp"
#include "emulator/memory_core.hpp"
#include "emulator/observers.hpp"
#include "emulator/wait_check.hpp"

namespace rocm_sd::emu {

class Checker {
 public:
  Checker(const Program& program, uint32_t waves, uint32_t lanes, uint32_t lds_bytes, uint32_t scratch_bytes);

  void start_group(const std::vector<Wave>& waves);
  // Around every instruction.
  void before(Wave& wave, const Inst& inst);
  void after(Wave& wave, const Inst& inst);
  // All waves that still run wait: they go on together.
  void barrier(const std::vector<Wave>& waves);

  // Lanes' accesses, before they happen; lanes that point elsewhere are left out.
  void global(Wave& wave, const Inst& inst, const Pointers& pointers, uint32_t bytes);
  void lds(Wave& wave, const Inst& inst, const Pointers& pointers, uint32_t bytes);
  void scratch(Wave& wave, const Inst& inst, const Pointers& pointers, uint32_t bytes);
  // A scalar load.
  void scalar(Wave& wave, const Inst& inst, const uint8_t* at, uint32_t bytes);

 private:
  // A load of scratch that nothing had written, by its first lane.
  struct Unwritten {
    const Inst* by;
    uint32_t lane, first, bytes;  // of the lane's scratch
  };
  struct Watched {  // of a wave
    WaitCheck waits;
    HazardCheck hazards;
    uint64_t lanes = 0;             // that it began with
    uint64_t absent = 0;            // that were not there at `partial`
    const Inst* partial = nullptr;  // a barrier that only some lanes came to
    const Inst* at_barrier = nullptr;
    std::vector<Unwritten> unwritten;
    bool signalled = false;
    bool in_lds = false;  // where the flat access went
  };
  const Uses& uses(const Inst& inst);
  void global_bytes(Wave& wave, const Inst& inst, uint64_t address, uint32_t bytes, uint32_t lane);

  const Program& program_;
  std::vector<int32_t> use_index_;  // by index in Program::code; -1: not yet looked at
  std::vector<Uses> uses_;
  std::vector<Watched> states_;
  LdsShadow shadow_;
  std::vector<uint8_t> scratch_;  // [wave][lane][byte]: written
  uint32_t lanes_, scratch_bytes_;
  size_t last_range_ = 0;
};

}  // namespace rocm_sd::emu
