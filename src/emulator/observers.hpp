// What watches memory accesses where a launch asks for it: races in LDS.
#pragma once

#include <cstdint>
#include <vector>

#include "emulator/memory_core.hpp"

namespace rocm_sd::emu {

// Who touched each byte of a group's LDS since the last barrier. Throws KernelFault for a race (two waves, no
// barrier between them, one writes, not both by atomics, and two writes differ), for a read of a byte that
// nobody wrote, and where a wave came to the barrier without having waited for its store, which others then
// need not see.
class LdsShadow {
 public:
  LdsShadow(uint32_t bytes, uint32_t waves) : bytes_(bytes), arrived_(waves), settled_(waves) {}
  void start_group();
  // A wave comes to a barrier; `ended`: how many of its LDS operations have.
  void arrive(uint32_t wave, uint32_t ended) { arrived_[wave] = ended; }
  void barrier() {
    ++epoch_;
    settled_ = arrived_;
  }
  // operation: the number of this one among the wave's, from 1.
  void access(const Wave& wave, const Inst& inst, const Pointers& pointers, uint32_t bytes,
              uint32_t operation);
  // After the instruction whose access() came before.
  void done(const Wave& wave, const Inst& inst);

 private:
  struct Byte {
    uint32_t write_epoch = 0, read_epoch = 0;
    uint32_t operation = 0;          // of the writer
    uint8_t writer = 0, reader = 0;  // waves; kMany readers
    bool written = false, by_atomic = false;
  };
  void touch(const Wave& wave, const Inst& inst, uint32_t at, uint32_t lane, uint32_t operation);

  [[noreturn]] static void race(const Wave& wave, const Inst& inst, uint32_t lane, bool writes, uint32_t at,
                                uint32_t writer);

  struct Rewrite {  // of a byte that another wave wrote
    uint32_t at, lane, writer;
    uint8_t value;  // that it had
  };
  std::vector<Rewrite> rewrites_;
  std::vector<Byte> bytes_;
  std::vector<uint32_t> arrived_, settled_;  // by wave
  uint32_t epoch_ = 1;
};

}  // namespace rocm_sd::emu
