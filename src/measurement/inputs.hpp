// The operands of a workload: random values on the device, of which the host knows each without a copy.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "measurement/workload.hpp"

namespace rocm_sd::measurement {

// Each operand repeats a block of random values of its own; the block's length is prime and longer than any
// row, so that no two tiles of a problem are alike. Evenly distributed; scaled so that sums over a row of
// products are of order 1.
class Inputs {
 public:
  // Allocates and fills what the problem reads. Throws OutOfMemoryError.
  Inputs(Device& device, const library::Problem& problem, uint32_t seed = 1);
  // The same, the weight quantised as the workload says.
  Inputs(Device& device, const Workload& workload);

  const library::Operands& operands() const { return operands_; }
  // A weight over the operand of that name, new each time; empty where the problem has none.
  Weight weight() const;
  // The 8-bit type that products may round the other operand to: the weight's.
  std::optional<DType> rounded_to() const;
  bool has(library::Slot slot) const { return blocks_.contains(slot); }
  // Element i of the operand's memory, as stored in its type; of a weight in 8 bits, with its scale.
  double value(library::Slot slot, int64_t i) const;

 private:
  void quantise(Device& device, DType held, bool products);

  library::Operands operands_;
  StoredWeight eight_bit_;             // empty unless the weight is held so
  std::optional<DType> product_type_;  // of a weight that is held in fewer bits than it is multiplied in
  std::map<library::Slot, std::vector<float>> blocks_;
};

}  // namespace rocm_sd::measurement
