// The GPU vendors' libraries that a program on this machine could use: found with the loader, by name.
#pragma once

#include <string>
#include <vector>

namespace rocm_sd::doctor {

struct Library {
  std::string product;  // "MIOpen"
  std::string file;     // "libMIOpen.so.1": the name that opened; "" where none did
  std::string problem;  // the loader's words where none opened, or the function that it lacks
  bool usable() const { return problem.empty(); }
};

// Opens each once and asks for one function that every version of it has. The file that the library's own
// variable names (ROCM_SD_CUDNN) goes before the loader's places, ROCm's folder /opt/rocm/lib comes after.
std::vector<Library> find_libraries();

}  // namespace rocm_sd::doctor
