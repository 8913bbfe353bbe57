#include "measurement/energy.hpp"

#include <algorithm>
#include <fstream>
#include <optional>

#include "base/dynamic_library.hpp"
#include "base/error.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd::measurement {
namespace {

namespace fs = std::filesystem;

std::optional<double> read_number(const fs::path& path) {
  std::ifstream file(path);
  double value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

std::string read_word(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

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

// nvml.h: NVML's functions return 0 on success.
class Nvml {
 public:
  Nvml() : library_({"libnvidia-ml.so.1"}) {
    if (!library_) return;
    const auto init = reinterpret_cast<int (*)()>(library_.symbol("nvmlInit_v2"));
    handle_ =
        reinterpret_cast<int (*)(const char*, void**)>(library_.symbol("nvmlDeviceGetHandleByPciBusId_v2"));
    energy_ = reinterpret_cast<int (*)(void*, unsigned long long*)>(
        library_.symbol("nvmlDeviceGetTotalEnergyConsumption"));
    usable_ = init && handle_ && energy_ && init() == 0;
  }
  // Joules since the driver was loaded; nothing where the GPU has no such counter.
  std::optional<double> joules(const std::string& pci) const {
    void* device = nullptr;
    unsigned long long millijoules = 0;
    if (!usable_ || handle_(pci.c_str(), &device) != 0 || energy_(device, &millijoules) != 0)
      return std::nullopt;
    return static_cast<double>(millijoules) * 1e-3;
  }

 private:
  DynamicLibrary library_;
  int (*handle_)(const char*, void**) = nullptr;
  int (*energy_)(void*, unsigned long long*) = nullptr;
  bool usable_ = false;
};

class NvmlCounter final : public EnergyCounter {
 public:
  explicit NvmlCounter(std::string pci) : pci_(std::move(pci)) {}
  std::string name() const override { return concat("NVML: GPU ", pci_); }
  double joules() override { return nvml_.joules(pci_).value_or(0); }
  bool works() const { return nvml_.joules(pci_).has_value(); }

 private:
  Nvml nvml_;
  std::string pci_;
};

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}

// Packages only: their parts are counted in them.
void add_rapl(std::vector<std::unique_ptr<EnergyCounter>>& out, const fs::path& root) {
  for (const fs::path& zone : entries(root / "class" / "powercap")) {
    const std::string name = zone.filename().string();
    if (!name.starts_with("intel-rapl:") || std::ranges::count(name, ':') != 1) continue;
    if (!read_number(zone / "energy_uj")) continue;
    out.push_back(std::make_unique<FileCounter>(concat("RAPL: ", read_word(zone / "name")),
                                                zone / "energy_uj",
                                                read_number(zone / "max_energy_range_uj").value_or(0)));
  }
}

// The sensor whose "device" leads to the GPU.
void add_amdgpu(std::vector<std::unique_ptr<EnergyCounter>>& out, const std::string& pci,
                const fs::path& root) {
  for (const fs::path& sensor : entries(root / "class" / "hwmon")) {
    std::error_code failed;
    if (fs::canonical(sensor / "device", failed).filename() != pci || failed) continue;
    if (read_word(sensor / "name") == "amdgpu" && read_number(sensor / "energy1_input"))
      out.push_back(std::make_unique<FileCounter>(concat("amdgpu: GPU ", pci), sensor / "energy1_input", 0));
  }
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
