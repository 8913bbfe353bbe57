#include "measurement/record.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "measurement/clocks.hpp"

namespace rocm_sd::measurement {

extern const char* const kBuiltFromCommit;  // cmake/commit.cmake writes its file at each build

namespace {

std::string shell_word(const std::string& word) {
  constexpr auto kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=:,./@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::string out;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\0', begin), text.size());
    std::string word = text.substr(begin, end - begin);
    if (begin == 0) word = word.substr(word.rfind('/') + 1);  // npos + 1 is 0
    out += (begin == 0 ? "" : " ") + shell_word(word);
  }
  return out;
}

std::string built_from_commit() { return kBuiltFromCommit; }

nlohmann::ordered_json record_head(const std::string& benchmark, Device& device) {
  utsname system{};
  std::string release = uname(&system) == 0 ? system.release : "";
  release = release.substr(0, release.find('-'));  // what follows is a distribution's or a provider's name
  return {{"schema", kRecordSchema},
          {"benchmark", benchmark},
          {"command", command_line()},
          {"device", device.name()},
          {"driver", driver_of(device)},
          {"system", fmt::format("{} {}", system.sysname, release)},
          {"commit", built_from_commit()},
          {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))}};
}

}  // namespace rocm_sd::measurement
