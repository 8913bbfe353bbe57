// The clocks, power and temperature of a device while something is measured, and the driver it runs with: a
// time without them cannot be compared with another day's.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device.hpp"

namespace rocm_sd::measurement {

struct ClockReading {
  std::optional<double> core_mhz, memory_mhz, watts, celsius;
};

class ClockMeter {
 public:
  virtual ~ClockMeter() = default;
  virtual std::string source() const = 0;  // "NVML", "amdgpu", "cpufreq", "/proc/cpuinfo"
  virtual std::optional<double> core_max_mhz() const = 0;
  virtual ClockReading read() = 0;
};

// Of NVIDIA GPUs NVML; of AMD GPUs amdgpu's hwmon and pp_dpm_sclk; of the host the fastest core's clock. Null
// where no clock can be read, as on emulated GPUs. pci: the GPU's place on the bus. root: of the file system.
std::unique_ptr<ClockMeter> clock_meter(DeviceKind kind, const std::string& pci,
                                        const std::filesystem::path& root = "/");
std::unique_ptr<ClockMeter> clock_meter(Device& device, const std::filesystem::path& root = "/");

// "580.159.04", amdgpu's version, or for the host and for what names none the kernel's release.
std::string driver_of(DeviceKind kind, const std::string& pci, const std::filesystem::path& root = "/");
std::string driver_of(Device& device);

// Readings of one meter during a measurement. Nothing is read where there is no meter.
class ClockLog {
 public:
  explicit ClockLog(std::unique_ptr<ClockMeter> meter) : meter_(std::move(meter)) {}
  void read();      // now
  void read_due();  // now, unless the last reading is less than 50 ms old: to be called between timed runs

  const std::vector<ClockReading>& readings() const { return readings_; }
  // {"source", "core_mhz": {"min", "median", "max"}, "core_max_mhz", "memory_mhz", "watts_max",
  // "celsius_max"}, what was read of it; null without any reading.
  nlohmann::ordered_json json() const;
  std::string text()
      const;  // "core 1710 to 1980 MHz (median 1905, at most 1980), memory 3201 MHz, 650 W, 61 C (NVML)"

 private:
  std::unique_ptr<ClockMeter> meter_;
  std::vector<ClockReading> readings_;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace rocm_sd::measurement
