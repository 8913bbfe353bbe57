#include "measurement/clocks.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "measurement/nvml.hpp"
#include "measurement/sysfs.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd::measurement {
namespace {

namespace fs = std::filesystem;

std::optional<double> scaled(std::optional<double> value, double by) {
  return value ? std::optional(*value * by) : std::nullopt;
}

class NvmlMeter final : public ClockMeter {
 public:
  explicit NvmlMeter(const std::string& pci) : nvml_(pci) {}
  std::string source() const override { return "NVML"; }
  std::optional<double> core_max_mhz() const override { return nvml_.core_max_mhz(); }
  ClockReading read() override {
    return {nvml_.core_mhz(), nvml_.memory_mhz(), nvml_.watts(), nvml_.celsius()};
  }

 private:
  Nvml nvml_;
};

// pp_dpm_sclk and pp_dpm_mclk: lines such as "1: 2482Mhz *", the star at what runs now.
struct Levels {
  std::optional<double> now, highest;
};
Levels levels_of(const fs::path& path) {
  std::ifstream file(path);
  Levels out;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    char* end = nullptr;
    const double mhz = std::strtod(line.c_str() + colon + 1, &end);
    if (end == line.c_str() + colon + 1 || !(mhz > 0)) continue;
    if (line.find('*') != std::string::npos) out.now = mhz;
    out.highest = std::max(out.highest.value_or(0), mhz);
  }
  return out;
}

class AmdgpuMeter final : public ClockMeter {
 public:
  explicit AmdgpuMeter(fs::path sensors) : sensors_(std::move(sensors)) {}
  std::string source() const override { return "amdgpu"; }
  std::optional<double> core_max_mhz() const override { return levels("pp_dpm_sclk").highest; }
  ClockReading read() override {
    auto power = read_number(sensors_ / "power1_average");  // of older kernels and larger cards
    if (!power) power = read_number(sensors_ / "power1_input");
    return {clock("freq1_input", "pp_dpm_sclk"), clock("freq2_input", "pp_dpm_mclk"), scaled(power, 1e-6),
            scaled(read_number(sensors_ / "temp1_input"), 1e-3)};
  }

 private:
  Levels levels(const char* file) const { return levels_of(sensors_ / "device" / file); }
  std::optional<double> clock(const char* hertz, const char* table) const {
    const auto now = scaled(read_number(sensors_ / hertz), 1e-6);
    return now ? now : levels(table).now;
  }
  fs::path sensors_;
};

// The fastest core: the others may have nothing to do.
class CpuMeter final : public ClockMeter {
 public:
  explicit CpuMeter(fs::path root) : root_(std::move(root)) {}
  std::string source() const override { return fastest("scaling_cur_freq") ? "cpufreq" : "/proc/cpuinfo"; }
  std::optional<double> core_max_mhz() const override { return fastest("cpuinfo_max_freq"); }
  ClockReading read() override {
    const auto frequency = fastest("scaling_cur_freq");
    return {.core_mhz = frequency ? frequency : from_cpuinfo()};
  }

 private:
  std::optional<double> fastest(const char* file) const {
    std::optional<double> out;
    for (const fs::path& cpu : entries_of(root_ / "sys/devices/system/cpu"))
      if (const auto khz = read_number(cpu / "cpufreq" / file)) out = std::max(out.value_or(0), *khz * 1e-3);
    return out;
  }
  std::optional<double> from_cpuinfo() const {
    std::ifstream file(root_ / "proc/cpuinfo");
    std::optional<double> out;
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("cpu MHz") && line.find(':') != std::string::npos)
        out = std::max(out.value_or(0), std::strtod(line.c_str() + line.find(':') + 1, nullptr));
    return out;
  }
  fs::path root_;
};

std::string pci_of(Device& device) {
  return device.kind() == DeviceKind::kHost ? "" : static_cast<GpuDevice&>(device).traits().pci;
}

// One field of all readings that have it, sorted.
std::vector<double> sorted(const std::vector<ClockReading>& readings,
                           std::optional<double> ClockReading::* field) {
  std::vector<double> out;
  for (const ClockReading& r : readings)
    if (r.*field) out.push_back(*(r.*field));
  std::ranges::sort(out);
  return out;
}

}  // namespace

std::unique_ptr<ClockMeter> clock_meter(DeviceKind kind, const std::string& pci, const fs::path& root) {
  std::unique_ptr<ClockMeter> meter;
  if (kind == DeviceKind::kHost) meter = std::make_unique<CpuMeter>(root);
  if (kind == DeviceKind::kCuda && !pci.empty()) meter = std::make_unique<NvmlMeter>(pci);
  if (kind == DeviceKind::kHip && !pci.empty())
    meter = std::make_unique<AmdgpuMeter>(amdgpu_sensors(pci, root / "sys"));
  if (meter && !meter->read().core_mhz) meter.reset();
  return meter;
}

std::unique_ptr<ClockMeter> clock_meter(Device& device, const fs::path& root) {
  return clock_meter(device.kind(), pci_of(device), root);
}

std::string driver_of(DeviceKind kind, const std::string& pci, const fs::path& root) {
  if (kind == DeviceKind::kCuda)
    if (const std::string version = Nvml(pci).driver(); !version.empty()) return version;
  if (kind == DeviceKind::kHip)
    if (const std::string version = read_word(root / "sys/module/amdgpu/version"); !version.empty())
      return "amdgpu " + version;
  utsname system{};
  if (uname(&system) != 0) return "unknown";
  const std::string release = system.release;  // what follows '-' is a distribution's or a provider's name
  return fmt::format("{} {}", system.sysname, release.substr(0, release.find('-')));
}

std::string driver_of(Device& device) { return driver_of(device.kind(), pci_of(device)); }

void ClockLog::read() {
  if (!meter_) return;
  readings_.push_back(meter_->read());
  last_ = std::chrono::steady_clock::now();
}

void ClockLog::read_due() {
  constexpr auto kApart = std::chrono::milliseconds(50);
  if (meter_ && std::chrono::steady_clock::now() - last_ >= kApart) read();
}

nlohmann::ordered_json ClockLog::json() const {
  nlohmann::ordered_json out;
  const std::vector<double> core = sorted(readings_, &ClockReading::core_mhz);
  if (core.empty()) return out;
  out["source"] = meter_->source();
  out["core_mhz"] = {{"min", core.front()}, {"median", core[core.size() / 2]}, {"max", core.back()}};
  if (const auto most = meter_->core_max_mhz()) out["core_max_mhz"] = *most;
  const auto add = [&](const char* name, std::optional<double> ClockReading::* field) {
    if (const std::vector<double> values = sorted(readings_, field); !values.empty())
      out[name] = values.back();
  };
  add("memory_mhz", &ClockReading::memory_mhz);
  add("watts_max", &ClockReading::watts);
  add("celsius_max", &ClockReading::celsius);
  return out;
}

std::string ClockLog::text() const {
  const nlohmann::ordered_json j = json();
  if (j.is_null()) return "clocks: not readable";
  const auto number = [&](const char* name) { return j[name].get<double>(); };
  std::string out =
      fmt::format("clocks: core {:.0f} to {:.0f} MHz (median {:.0f}", j["core_mhz"]["min"].get<double>(),
                  j["core_mhz"]["max"].get<double>(), j["core_mhz"]["median"].get<double>());
  if (j.contains("core_max_mhz")) out += fmt::format(", at most {:.0f}", number("core_max_mhz"));
  out += ")";
  if (j.contains("memory_mhz")) out += fmt::format(", memory {:.0f} MHz", number("memory_mhz"));
  if (j.contains("watts_max")) out += fmt::format(", {:.0f} W", number("watts_max"));
  if (j.contains("celsius_max")) out += fmt::format(", {:.0f} C", number("celsius_max"));
  return out + fmt::format(" ({})", j["source"].get<std::string>());
}

}  // namespace rocm_sd::measurement
