// What Linux tells in files of one number or word, and an AMD GPU's folder of sensors.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rocm_sd::measurement {

std::optional<double> read_number(const std::filesystem::path& path);  // nothing where there is none
std::string read_word(const std::filesystem::path& path);              // "" where there is none
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);  // sorted; none on errors

// amdgpu's folder below class/hwmon whose "device" leads to the GPU at pci; "" where there is none.
std::filesystem::path amdgpu_sensors(const std::string& pci, const std::filesystem::path& sysfs);

}  // namespace rocm_sd::measurement
