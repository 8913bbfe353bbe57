// Checks of a file's tensors before a model is made of them.
#pragma once

#include <vector>

#include "models/parameters.hpp"
#include "weights/store.hpp"

namespace rocm_sd {

// Every tensor of the model is there, of the right shape, and no other is. what: "a ControlNet". Throws
// FormatError and ShapeError.
void require_complete(const WeightStore& store, const std::vector<ParameterSlot::Part>& parts,
                      const char* what);
// Looks at tensors of up to 2^20 values. Throws FormatError.
void require_finite(const WeightStore& store);

}  // namespace rocm_sd
