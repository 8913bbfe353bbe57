// Logging to standard error through spdlog. ROCM_SD_LOG sets the level and topics: "debug", "dispatch",
// "warn,dispatch".
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

namespace rocm_sd {

// The project's logger; made on first use from ROCM_SD_LOG. Thread-safe.
spdlog::logger& log();

// True where ROCM_SD_LOG names the topic (topics: "dispatch", one line per problem and chosen
// implementation).
bool log_topic(std::string_view topic);

}  // namespace rocm_sd
