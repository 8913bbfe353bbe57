#include "doctor/sysfs.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>

namespace rocm_sd::doctor {
namespace fs = std::filesystem;

std::string read_text(const fs::path& path, size_t most) {
  std::string text = read_bytes(path, most);
  text.erase(text.find_last_not_of(" \t\r\n\0") + 1);
  return text;
}

std::string read_bytes(const fs::path& path, size_t most) {
  std::error_code failed;
  if (fs::is_directory(path, failed) || fs::is_fifo(path, failed)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string text(most, '\0');
  file.read(text.data(), static_cast<std::streamsize>(most));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

uint64_t read_number(const fs::path& path) {
  const std::string text = read_text(path, 64);
  const bool hex = text.starts_with("0x");
  uint64_t value = 0;
  const char* begin = text.data() + (hex ? 2 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value, hex ? 16 : 10);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed))
    found.push_back(it->path());
  std::sort(found.begin(), found.end());
  return found;
}

std::map<std::string, uint64_t> read_properties(const fs::path& path) {
  std::map<std::string, uint64_t> properties;
  std::istringstream lines(read_text(path));
  std::string name;
  for (uint64_t value = 0; lines >> name >> value;) properties[name] = value;
  return properties;
}

}  // namespace rocm_sd::doctor
