#include "measurement/energy.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "measurement/nvml.hpp"
#include "measurement/sysfs.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd::measurement {
namespace {

namespace fs = std::filesystem;

// A file of microjoules that wraps at `range` (0: never).
class FileCounter final : public EnergyCounter {
 public:
  FileCounter(std::string name, fs::path file, double range)
      : name_(std::move(name)),
        file_(std::move(file)),
        range_(range),
        last_(read_number(file_).value_or(0)) {}
  std::string name() const override { return name_; }
  double joules() override {
    const double now = read_number(file_).value_or(last_);
    total_ += now >= last_ ? now - last_ : now + range_ - last_;
    last_ = now;
    return total_ * 1e-6;
  }

 private:
  std::string name_;
  fs::path file_;
  double range_, last_, total_ = 0;
};

class NvmlCounter final : public EnergyCounter {
 public:
  explicit NvmlCounter(std::string pci) : pci_(std::move(pci)), nvml_(pci_) {}
  std::string name() const override { return concat("NVML: GPU ", pci_); }
  double joules() override { return nvml_.joules().value_or(0); }
  bool works() const { return nvml_.joules().has_value(); }

 private:
  std::string pci_;
  Nvml nvml_;
};

// Packages only: their parts are counted in them.
void add_rapl(std::vector<std::unique_ptr<EnergyCounter>>& out, const fs::path& root) {
  for (const fs::path& zone : entries_of(root / "class" / "powercap")) {
    const std::string name = zone.filename().string();
    if (!name.starts_with("intel-rapl:") || std::ranges::count(name, ':') != 1) continue;
    if (!read_number(zone / "energy_uj")) continue;
    out.push_back(std::make_unique<FileCounter>(concat("RAPL: ", read_word(zone / "name")),
                                                zone / "energy_uj",
                                                read_number(zone / "max_energy_range_uj").value_or(0)));
  }
}

void add_amdgpu(std::vector<std::unique_ptr<EnergyCounter>>& out, const std::string& pci,
                const fs::path& root) {
  const fs::path sensors = amdgpu_sensors(pci, root);
  if (!sensors.empty() && read_number(sensors / "energy1_input"))
    out.push_back(std::make_unique<FileCounter>(concat("amdgpu: GPU ", pci), sensors / "energy1_input", 0));
}

}  // namespace

std::vector<std::unique_ptr<EnergyCounter>> energy_counters(DeviceKind kind, const std::string& pci,
                                                            const fs::path& root) {
  std::vector<std::unique_ptr<EnergyCounter>> out;
  if (kind == DeviceKind::kHost) add_rapl(out, root);
  if (kind == DeviceKind::kHip && !pci.empty()) add_amdgpu(out, pci, root);
  if (kind == DeviceKind::kCuda && !pci.empty()) {
    auto counter = std::make_unique<NvmlCounter>(pci);
    if (counter->works()) out.push_back(std::move(counter));
  }
  return out;
}

std::vector<std::unique_ptr<EnergyCounter>> energy_counters(Device& device, const fs::path& root) {
  const bool gpu = device.kind() != DeviceKind::kHost;
  return energy_counters(device.kind(), gpu ? static_cast<GpuDevice&>(device).traits().pci : "", root);
}

}  // namespace rocm_sd::measurement
