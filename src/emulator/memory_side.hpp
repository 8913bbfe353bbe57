// The memory behind one compute unit in the time model: its vector cache, its way to the second-level cache,
// and the processor's shares of what lies behind. Each is a queue of a bandwidth with a latency behind it.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "emulator/timing.hpp"

namespace rocm_sd::emu {

// What the compute units of a processor share.
struct SharedQueues {
  double l2 = 0, last_level = 0, memory = 0;  // free from this cycle on
  double carry_l2 = 0, carry_last = 0, carry_stores = 0;
  double from_memory = 0;  // lines
  double owed = 0;         // bytes that the caches have yet to write back
};

class MemorySide {
 public:
  MemorySide(const Machine& machine, const MemoryShare& share, bool has_last_level, SharedQueues& queues)
      : machine_(machine),
        share_(share),
        has_last_level_(has_last_level),
        queues_(queues),
        capacity_(static_cast<uint64_t>(machine.l0_kib * 1024 / kLine)) {}

  // An instruction issued at cycle `at` by a wave of `lanes`; when its data is there (or stored).
  double load(double at, std::span<const uint64_t> lines, uint32_t bytes, double least);
  double store(double at, std::span<const uint64_t> lines, uint32_t bytes, double least);
  double free() const { return free_; }  // takes addresses from this cycle on
  double busy = 0, asked = 0, missed = 0, stored = 0;

 private:
  static constexpr double kLine = 64;
  double begin(double at, size_t lines, uint32_t bytes, double least);
  double fetch(double at);
  double pass_memory(double at);

  // A first-in, first-out cache of any line anywhere: `serial` counts the lines that came.
  struct Held {
    uint64_t serial = 0;
    double ready = 0;
  };
  const Machine& machine_;
  const MemoryShare& share_;
  bool has_last_level_;
  SharedQueues& queues_;
  uint64_t capacity_, serial_ = 0;
  std::unordered_map<uint64_t, Held> lines_;
  double free_ = 0, port_ = 0;
};

}  // namespace rocm_sd::emu
