#include "base/log.hpp"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>

namespace rocm_sd {
namespace {

struct LogSetup {
  std::shared_ptr<spdlog::logger> logger;
  std::set<std::string, std::less<>> topics;

  LogSetup() {
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    // https://no-color.org; spdlog itself looks at TERM and at whether stderr is a terminal.
    if (const char* plain = std::getenv("NO_COLOR"); plain && *plain)
      sink->set_color_mode(spdlog::color_mode::never);
    logger = std::make_shared<spdlog::logger>("rocm-sd", std::move(sink));
    logger->set_pattern("%^%l%$: %v");
    logger->set_level(spdlog::level::info);
    const char* env = std::getenv("ROCM_SD_LOG");
    std::string_view rest = env ? env : "";
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      const std::string word(rest.substr(0, comma));
      rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
      const auto level = spdlog::level::from_str(word);  // "off" also for unknown words
      if (level != spdlog::level::off || word == "off")
        logger->set_level(level);
      else
        topics.insert(word);
    }
  }
};

LogSetup& setup() {
  static LogSetup instance;
  return instance;
}

spdlog::level::level_enum of_spdlog(Log::Level level) {
  switch (level) {
    case Log::Level::kDebug: return spdlog::level::debug;
    case Log::Level::kInfo: return spdlog::level::info;
    case Log::Level::kWarn: return spdlog::level::warn;
    case Log::Level::kOff: break;
  }
  return spdlog::level::off;
}

}  // namespace

void Log::set_level(Level least) { setup().logger->set_level(of_spdlog(least)); }

void Log::write(Level level, fmt::string_view text, fmt::format_args args) {
  spdlog::logger& logger = *setup().logger;
  if (logger.should_log(of_spdlog(level))) logger.log(of_spdlog(level), fmt::vformat(text, args));
}

Log& log() {
  static Log instance;
  return instance;
}
bool log_topic(std::string_view topic) { return setup().topics.contains(topic); }

}  // namespace rocm_sd
