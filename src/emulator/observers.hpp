// What watches memory accesses where a launch asks for it: races in LDS.
#pragma once

#include <cstdint>
#include <vector>

#include "emulator/memory_core.hpp"
#include "emulator/wait_check.hpp"

namespace rocm_sd::emu {

// Who touched each byte of a group's LDS since the last barrier. Throws KernelFault for a race, for a read of
// a byte that nobody wrote, where a wave came to the barrier without having waited for its store or its load
// to LDS, which others then need not see, or for a read of what another's load to LDS then overwrites. Of its
// own loads to LDS a wave sees those that it waited for.
//
// A race: two waves touch a byte with no barrier between, one of them writes, not both by atomics, and two
// plain writes differ. A compare-and-swap loop begins with a plain load, which machine code does not tell
// from any other: a plain read beside another wave's atomic is a race only if its wave comes to the barrier,
// or ends, without an atomic of its own there.
class LdsShadow {
 public:
  // loads: whether there may be loads to LDS.
  LdsShadow(uint32_t bytes, uint32_t waves, bool loads)
      : bytes_(bytes), reads_(loads ? size_t{bytes} * waves : 0), arrived_(waves), settled_(waves) {}
  void start_group();
  // A wave comes to a barrier; `ended`: how many of its operations on LDS have.
  void arrive(uint32_t wave, LdsOperations ended) { arrived_[wave] = ended; }
  void barrier(const std::vector<Wave>& waves);
  // A wave has ended.
  void end(const Wave& wave);
  // issued, ended: of the wave's operations on LDS, before this one.
  void access(const Wave& wave, const Inst& inst, const Pointers& pointers, uint32_t bytes,
              LdsOperations issued, LdsOperations ended);
  // After the instruction whose access() came before.
  void done(const Wave& wave, const Inst& inst);

 private:
  // Sets of waves are masks: a group has 32 at most.
  struct Byte {
    uint32_t write_epoch = 0, read_epoch = 0, atomic_epoch = 0;
    uint32_t operation = 0;             // of the writer: of its loads to LDS, or of its others
    uint32_t readers = 0, atomics = 0;  // who read it plainly, who did atomics on it, in that epoch
    uint32_t suspects = 0;              // whose plain reads another's atomic met
    const Inst* read_by = nullptr;      // the last plain read
    uint8_t writer = 0, reading_lane = 0;
    bool written = false, by_atomic = false, by_load = false;
  };
  struct Suspect {
    uint32_t at;
    uint8_t wave, lane, other;
    const Inst* by;
  };
  struct Rewrite {  // of a byte that another wave wrote
    uint32_t at, lane, writer;
    uint8_t value;  // that it had
  };
  void touch(const Wave& wave, const Inst& inst, uint32_t at, uint32_t lane, uint32_t operation,
             uint32_t own_loads);
  void suspect(Byte& byte, const Suspect& who);
  void settle(const Wave& wave);  // throws for a suspect of this wave
  [[noreturn]] static void race(const Wave& wave, const Inst& inst, uint32_t lane, bool writes, uint32_t at,
                                uint32_t writer);

  std::vector<Rewrite> rewrites_;
  std::vector<Suspect> suspects_;  // those whose bit in Byte::suspects has been cleared are none any more
  std::vector<Byte> bytes_;
  std::vector<uint32_t> reads_;  // [byte][wave]: the wave's last read of it, as an operation; 0: none
  std::vector<LdsOperations> arrived_, settled_;  // by wave
  uint32_t epoch_ = 1, ended_ = 0;
};

}  // namespace rocm_sd::emu
