// docs/reference/kernel-map.md, from the maps and the costs: `rocm-sd bench --mode kernel-map` prints it, a
// test compares it.
#pragma once

#include <string>

namespace rocm_sd {

std::string kernel_map_page();

}  // namespace rocm_sd
