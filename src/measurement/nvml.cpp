#include "measurement/nvml.hpp"

namespace rocm_sd::measurement {
namespace {

constexpr int kSmClock = 1, kMemoryClock = 2;  // nvmlClockType_t
constexpr int kGpuSensor = 0;                  // nvmlTemperatureSensors_t

template <class Function>
Function* function_of(const DynamicLibrary& library, const char* name) {
  return reinterpret_cast<Function*>(library.symbol(name));
}

}  // namespace

// nvml.h: NVML's functions return 0 on success.
Nvml::Nvml(std::string pci)
    : library_(DynamicLibrary::chosen_by("ROCM_SD_NVML_LIBRARY", {"libnvidia-ml.so.1"})) {
  if (!library_) return;
  auto* const init = function_of<int()>(library_, "nvmlInit_v2");
  auto* const handle = function_of<int(const char*, void**)>(library_, "nvmlDeviceGetHandleByPciBusId_v2");
  if (!init || !handle || init() != 0 || pci.empty() || handle(pci.c_str(), &device_) != 0) device_ = nullptr;
}

std::string Nvml::driver() const {
  auto* const get = function_of<int(char*, unsigned)>(library_, "nvmlSystemGetDriverVersion");
  char text[96] = {};
  return get && get(text, sizeof text - 1) == 0 ? text : "";
}

std::optional<double> Nvml::number(const char* function) const {
  auto* const get = function_of<int(void*, unsigned*)>(library_, function);
  unsigned value = 0;
  if (!device_ || !get || get(device_, &value) != 0) return std::nullopt;
  return value;
}

std::optional<double> Nvml::clock(const char* function, int kind) const {
  auto* const get = function_of<int(void*, int, unsigned*)>(library_, function);
  unsigned value = 0;
  if (!device_ || !get || get(device_, kind, &value) != 0) return std::nullopt;
  return value;
}

std::optional<double> Nvml::joules() const {
  auto* const get =
      function_of<int(void*, unsigned long long*)>(library_, "nvmlDeviceGetTotalEnergyConsumption");
  unsigned long long millijoules = 0;
  if (!device_ || !get || get(device_, &millijoules) != 0) return std::nullopt;
  return static_cast<double>(millijoules) * 1e-3;
}

std::optional<double> Nvml::core_mhz() const { return clock("nvmlDeviceGetClockInfo", kSmClock); }
std::optional<double> Nvml::core_max_mhz() const { return clock("nvmlDeviceGetMaxClockInfo", kSmClock); }
std::optional<double> Nvml::memory_mhz() const { return clock("nvmlDeviceGetClockInfo", kMemoryClock); }

std::optional<double> Nvml::watts() const {
  const auto milliwatts = number("nvmlDeviceGetPowerUsage");
  return milliwatts ? std::optional(*milliwatts * 1e-3) : std::nullopt;
}

std::optional<double> Nvml::celsius() const { return clock("nvmlDeviceGetTemperature", kGpuSensor); }

}  // namespace rocm_sd::measurement
