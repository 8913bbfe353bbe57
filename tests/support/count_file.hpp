// What the emulator counted in each launch since the last look, through the file that ROCM_SD_EMULATOR_COUNT
// names (docs/emulator.md). Made before the first emulated device is opened.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace rocm_sd::bench {

class CountFile {
 public:
  CountFile() {
    if (const char* kept = std::getenv("ROCM_SD_EMULATOR_COUNT")) {
      path_ = kept;
      end_ = std::filesystem::exists(path_) ? std::filesystem::file_size(path_) : 0;
    } else {
      path_ = std::filesystem::temp_directory_path() /
              ("emulator_counts." + std::to_string(std::random_device{}()));
      setenv("ROCM_SD_EMULATOR_COUNT", path_.c_str(), 1);
      temporary_ = true;
    }
  }
  ~CountFile() {
    std::error_code ignored;
    if (temporary_) std::filesystem::remove(path_, ignored);
  }
  CountFile(const CountFile&) = delete;
  CountFile& operator=(const CountFile&) = delete;

  // A launch each, as to_json() in emulator/report.hpp writes them.
  std::vector<nlohmann::json> take() {
    std::vector<nlohmann::json> out;
    std::ifstream file(path_);
    file.seekg(static_cast<std::streamoff>(end_));
    for (std::string line; std::getline(file, line);) {
      end_ += line.size() + 1;
      out.push_back(nlohmann::json::parse(line));
    }
    return out;
  }

 private:
  std::filesystem::path path_;
  uint64_t end_ = 0;
  bool temporary_ = false;
};

}  // namespace rocm_sd::bench
