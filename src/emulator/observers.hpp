// What watches memory accesses where a launch asks for it: races in LDS.
#pragma once

#include <cstdint>
#include <vector>

#include "emulator/memory_core.hpp"

namespace rocm_sd::emu {

// Who touched each byte of a group's LDS since the last barrier. Throws KernelFault for a race (two waves, no
// barrier between them, one writes and not both by atomics) and for a read of a byte that nobody wrote.
class LdsShadow {
 public:
  explicit LdsShadow(uint32_t bytes) : bytes_(bytes) {}
  void start_group();
  void barrier() { ++epoch_; }
  void access(const Wave& wave, const Inst& inst, const Pointers& pointers, uint32_t bytes);

 private:
  struct Byte {
    uint32_t write_epoch = 0, read_epoch = 0;
    uint8_t writer = 0, reader = 0;  // waves; kMany readers
    bool written = false, by_atomic = false;
  };
  void touch(const Wave& wave, const Inst& inst, uint32_t at, uint32_t lane);

  std::vector<Byte> bytes_;
  uint32_t epoch_ = 1;
};

}  // namespace rocm_sd::emu
