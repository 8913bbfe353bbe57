// NVIDIA's management library, found at run time: what one GPU, named by its place on the bus, tells of
// itself.
#pragma once

#include <optional>
#include <string>

#include "base/dynamic_library.hpp"

namespace rocm_sd::measurement {

class Nvml {
 public:
  // Opens libnvidia-ml.so.1, or the library that ROCM_SD_NVML_LIBRARY names.
  explicit Nvml(std::string pci);

  std::string driver() const;            // "580.159.04"; "" where it is not told
  std::optional<double> joules() const;  // since the driver was loaded
  std::optional<double> core_mhz() const, core_max_mhz() const, memory_mhz() const;
  std::optional<double> watts() const, celsius() const;

 private:
  std::optional<double> number(const char* function) const;
  std::optional<double> clock(const char* function, int kind) const;

  DynamicLibrary library_;
  void* device_ = nullptr;
};

}  // namespace rocm_sd::measurement
