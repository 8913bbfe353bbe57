#include "measurement/sysfs.hpp"

#include <algorithm>
#include <fstream>

namespace rocm_sd::measurement {

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

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}

fs::path amdgpu_sensors(const std::string& pci, const fs::path& sysfs) {
  for (const fs::path& sensor : entries_of(sysfs / "class" / "hwmon")) {
    std::error_code failed;
    if (fs::canonical(sensor / "device", failed).filename() != pci || failed) continue;
    if (read_word(sensor / "name") == "amdgpu") return sensor;
  }
  return {};
}

}  // namespace rocm_sd::measurement
