// The operands of a workload: random values on the device, of which the host knows each without a copy.
#pragma once

#include <map>
#include <vector>

#include "kernel_library/problem.hpp"

namespace rocm_sd::measurement {

// Each operand repeats a block of random values of its own; the block's length is prime and longer than any
// row, so that no two tiles of a problem are alike. Evenly distributed; scaled so that sums over a row of
// products are of order 1.
class Inputs {
 public:
  // Allocates and fills what the problem reads. Throws OutOfMemoryError.
  Inputs(Device& device, const library::Problem& problem, uint32_t seed = 1);

  const library::Operands& operands() const { return operands_; }
  // A weight over the operand of that name, new each time; empty where the problem has none.
  Weight weight() const;
  bool has(library::Slot slot) const { return blocks_.contains(slot); }
  // Element i of the operand's memory, as stored in its type.
  double value(library::Slot slot, int64_t i) const;

 private:
  library::Operands operands_;
  std::map<library::Slot, std::vector<float>> blocks_;
};

}  // namespace rocm_sd::measurement
