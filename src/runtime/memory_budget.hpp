// MemoryBudget: devices that count what they hand out, and keep within a budget what they keep for
// themselves.
#pragma once

#include <cstdint>

#include "runtime/device.hpp"

namespace rocm_sd {

class MemoryBudget {
 public:
  virtual ~MemoryBudget() = default;
  virtual uint64_t peak_allocated() const = 0;  // most bytes handed out at once since reset_peak()
  virtual void reset_peak() = 0;
  // Freed blocks are kept for the next asker only while they and what is handed out take no more than this.
  virtual void set_budget(uint64_t bytes) = 0;
  virtual uint64_t room() const = 0;  // bytes that the budget leaves beside what is handed out
};

MemoryBudget* memory_budget(Device& device);  // null: it counts nothing but allocated()

}  // namespace rocm_sd
