// What tells whether ranks run the same program with the same weights.
#pragma once

#include <string>

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {

// 16 hexadecimal digits over all bytes; "none" for a file that cannot be read.
std::string hash_of_file(const std::string& path);

// The same over the weights' files: their names below the model's folder, sizes, first MiB (a header of
// safetensors) and 4096 bytes of every 8 MiB, so that 7 GB are compared in milliseconds. Files that differ in
// time or place alone are the same.
std::string hash_of_weights(const LoadOptions& options);

}  // namespace rocm_sd
