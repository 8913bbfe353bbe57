// Writes kernel archives (format: src/runtime/kernel_archive.hpp).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace rocm_sd {

struct PackedObject {
  std::string name;   // "conv.conv2d.co"
  std::string bytes;  // the code object
};

// Writes the archive of one target; objects without kernels are left out. The file is renamed into place, so
// that a program which reads the old one keeps it whole. Throws std::runtime_error where an object is none,
// a kernel is there twice, or the file cannot be written.
void write_kernel_archive(const std::filesystem::path& out, const std::string& target,
                          const std::string& compiler, const std::vector<PackedObject>& objects);

}  // namespace rocm_sd
