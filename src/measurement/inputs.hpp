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
class Inputs final : public OperandValues {
 public:
  // Allocates and fills what the problem reads; quantises the weight if the workload says so. Throws
  // OutOfMemoryError.
  Inputs(Device& device, const Workload& workload, uint32_t seed = 1);

  const Operands& operands() const { return operands_; }
  // A weight over the operand of that name, new each time; empty where the problem has none.
  Weight weight() const;
  std::optional<DType> rounded_to() const override;
  bool has(Role role) const { return blocks_.contains(role); }
  double value(Role role, int64_t i) const override;
  DType type_of(Role role) const override { return operands_.at(role).dtype(); }

 private:
  void fill(Device& device, const Operand& operand, DType weights, uint32_t seed);
  void quantise(Device& device, DType stored_as, bool products);

  Operands operands_;
  StoredWeight eight_bit_;             // empty unless the weight is stored so
  std::optional<DType> product_type_;  // of a weight that is stored in fewer bits than it is multiplied in
  std::map<Role, std::vector<float>> blocks_;
};

}  // namespace rocm_sd::measurement
