// What watches memory accesses where a launch asks for it: races in LDS, and how well global accesses
// coalesce.
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

// Global accesses of one instruction, summed over its executions.
struct AccessCount {
  uint64_t executions = 0;
  uint64_t lines64 = 0, lines128 = 0;  // distinct lines that each execution touched
  uint64_t useful = 0;                 // bytes that lanes asked for
};

class AccessMeter {
 public:
  AccessMeter(const Inst* first, size_t count) : first_(first), counts(count) {}
  void access(const Inst& inst, const Pointers& pointers, uint32_t bytes, uint32_t halves);

 private:
  const Inst* first_;

 public:
  std::vector<AccessCount> counts;  // by index in Program::code
};

}  // namespace rocm_sd::emu
