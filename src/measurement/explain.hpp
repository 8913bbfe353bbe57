// Why a problem takes the kernel that it takes on a GPU: the map's row, the estimates of all candidates, and
// what refused.
#pragma once

#include <string>

#include "measurement/workload.hpp"
#include "runtime/device.hpp"

namespace rocm_sd::measurement {

// A text for a terminal. Plans the problem and runs nothing; untuned, as a table's choice needs no estimate.
// device: may exist on paper only. Throws UsageError for a host, which has no map.
std::string explain(Device& device, const Workload& workload);

}  // namespace rocm_sd::measurement
