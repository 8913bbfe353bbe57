// Single outputs of a workload in double precision, from its inputs and the formula: a truth that shares no
// code with any implementation, cheap enough for problems of any size.
#pragma once

#include <cstdint>

#include "measurement/inputs.hpp"
#include "measurement/workload.hpp"

namespace rocm_sd::measurement {

struct ExactValue {
  double value = 0;
  double tolerance = 0;  // of a right implementation that sums in float and stores in the workload's type
};

// Output number i, row-major. The tolerance has three parts: rounding the result to its type; rounding of
// float sums, by the sum of the magnitudes that are added (64 units in the last place of it: Winograd's
// transforms lose about 20); and, for attention, probabilities that were rounded to the type.
ExactValue exact_output(const Workload& workload, const Inputs& inputs, int64_t i);

int64_t output_count(const Workload& workload);

}  // namespace rocm_sd::measurement
