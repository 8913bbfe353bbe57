// Why a problem takes the kernel that it takes on a GPU: the map's row, the estimates of all candidates, and
// what refused.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "kernels/family/explanation.hpp"
#include "measurement/workload.hpp"
#include "runtime/device.hpp"

namespace rocm_sd::measurement {

struct Explained {
  std::string op, problem;
  std::string chosen;                        // "gpu 128x160x32"
  std::vector<std::string> dispatch;         // as ROCM_SD_LOG=dispatch prints it, with refusals
  std::vector<Explanation> implementations;  // candidates with the least rank and cost first
};

// Plans the problem and runs nothing; untuned, as a table's choice needs no estimate. device: may exist on
// paper only. Throws UsageError for a host, which has no map.
Explained explain(Device& device, const Workload& workload);

std::string explained_text(const Explained& explained);  // for a terminal
nlohmann::ordered_json explained_json(const Explained& explained);

}  // namespace rocm_sd::measurement
