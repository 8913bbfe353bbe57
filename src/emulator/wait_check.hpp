// Registers whose load is still under way: which of a wave's memory operations its waits have covered.
#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "emulator/uses.hpp"

namespace rocm_sd::emu {

// Operations of a wave on LDS, counted from 1: LDS instructions, and loads to LDS.
struct LdsOperations {
  uint32_t lds = 0, loads = 0;
};

// The counters of one wave. A wait for N leaves at most N operations of its counter: those of one kind end in
// order (vector loads, stores, LDS operations), scalar loads in any, as do flat ones of gfx9. So what a wait
// of N > 0 ends for certain is the oldest of the ordered ones, as many as are left when all unordered ones
// are taken to end first. Sources: "Memory dependency counters" and "Manually inserted wait states" of AMD's
// ISA documents; LLVM's insertion of waits relies on the same order.
class WaitCheck {
 public:
  void start();
  // Before an instruction runs: throws KernelFault where it reads a register whose load is under way, or
  // overwrites one (but for a later load of the same kind, which cannot overtake).
  void before(const Wave& wave, const Inst& inst, const Uses& uses);
  // After it ran. in_lds: a flat access went to LDS.
  void after(const Inst& inst, const Uses& uses, const Target& target, bool in_lds);
  // Operations on LDS issued so far, and how many of them have ended for certain: those of LDS instructions,
  // and loads to LDS, which count as loads.
  LdsOperations lds_issued() const { return {lds_.issued, loads_.issued}; }
  LdsOperations lds_ended() const { return {lds_.issued - lds_.open, loads_.issued - loads_.open}; }

 private:
  struct Operation {
    Uses::Registers registers;
    bool vector = false, ordered = true, lds = false, to_lds = false;
    uint32_t serial = 0;
  };
  struct Pending {
    const Inst* by = nullptr;
    uint32_t serial = 0;
    Counter counter = Counter::kLoad;
    bool ordered = true, lds = false;
  };
  struct Queue {
    std::deque<Operation> open;
    uint32_t unordered = 0;
  };
  void push(Counter counter, const Inst& inst, const Uses& uses, bool ordered, bool lds, bool has_result);
  void wait(Counter counter, uint32_t left);
  void end(const Operation& operation);
  void read(const Wave& wave, const Inst& inst, const Pending* file, const Uses::Registers& registers,
            char name);
  void overwrite(const Wave& wave, const Inst& inst, const Uses& uses, const Pending* file,
                 const Uses::Registers& registers, char name);

  std::array<Queue, kCounters> queues_;
  std::array<Pending, kSpareRow> vector_;
  std::array<Pending, kScalars> scalar_;
  uint32_t pending_ = 0;  // registers
  uint32_t serial_ = 0;
  struct Count {
    uint32_t issued = 0, open = 0;
  };
  Count lds_, loads_;  // operations on LDS, loads to it
};

}  // namespace rocm_sd::emu
