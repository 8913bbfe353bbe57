// Counters of energy that a machine may have, read before and after what is measured.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device.hpp"

namespace rocm_sd::measurement {

class EnergyCounter {
 public:
  virtual ~EnergyCounter() = default;
  virtual std::string name() const = 0;  // "NVML: GPU 0000:1b:00.0", "RAPL: package-0"
  virtual double joules() = 0;           // since an unknown moment; rises while the process runs
};

// What can be read for a device of the kind: of NVIDIA GPUs NVML's counter, of AMD GPUs the accumulated
// energy of amdgpu's hwmon, of the host RAPL's packages (root only on many systems). May be none. pci: a
// GPU's place on the bus, by which the counters' own numbers of GPUs, from which nothing hides some, do not
// matter. root: of sysfs.
std::vector<std::unique_ptr<EnergyCounter>> energy_counters(DeviceKind kind, const std::string& pci,
                                                            const std::filesystem::path& root = "/sys");
std::vector<std::unique_ptr<EnergyCounter>> energy_counters(Device& device,
                                                            const std::filesystem::path& root = "/sys");

}  // namespace rocm_sd::measurement
