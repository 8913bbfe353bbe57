// What tells whether two pipelines were loaded from the same weights.
#pragma once

#include <string>

#include "weights/checkpoint.hpp"

namespace rocm_sd {

// 16 hexadecimal digits over the files' paths, sizes and times, and over the names, types and shapes of their
// tensors. Live tensors have no file: theirs alone count.
std::string weights_id(const Checkpoint& checkpoint);

}  // namespace rocm_sd
