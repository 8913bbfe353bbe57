// The options of IP-Adapters.
#pragma once

#include <vector>

#include "pipeline/options.hpp"

namespace rocm_sd {

// The table with their group behind that of ControlNets.
std::vector<OptionRow> with_ip_adapters(std::vector<OptionRow> table);

}  // namespace rocm_sd
