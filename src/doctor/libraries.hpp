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

// Opens each once (dlopen, lazily bound) and asks for one function that every version of it has. ROCm's
// folder /opt/rocm/lib is looked at after the loader's own places.
std::vector<Library> find_libraries();

}  // namespace rocm_sd::doctor
