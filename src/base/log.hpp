// Logging to standard error through spdlog. ROCM_SD_LOG sets the level and topics: "debug", "dispatch",
// "warn,dispatch".
#pragma once

#include <string_view>

#include "base/format.hpp"

namespace rocm_sd {

// The project's logger. Only log.cpp knows spdlog, whose headers take longer to parse than most files that
// log.
class Log {
 public:
  enum class Level { kDebug, kInfo, kWarn, kOff };

  template <class... Args>
  void debug(fmt::format_string<Args...> text, Args&&... args) {
    write(Level::kDebug, text, fmt::make_format_args(args...));
  }
  template <class... Args>
  void info(fmt::format_string<Args...> text, Args&&... args) {
    write(Level::kInfo, text, fmt::make_format_args(args...));
  }
  template <class... Args>
  void warn(fmt::format_string<Args...> text, Args&&... args) {
    write(Level::kWarn, text, fmt::make_format_args(args...));
  }
  void set_level(Level least);

 private:
  void write(Level level, fmt::string_view text, fmt::format_args args);
};

// Made on first use from ROCM_SD_LOG. Thread-safe.
Log& log();

// True where ROCM_SD_LOG names the topic (topics: "dispatch", one line per problem and chosen
// implementation).
bool log_topic(std::string_view topic);

}  // namespace rocm_sd
