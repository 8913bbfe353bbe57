// The head of a file of measurements: who measured what, with which command, on which device, driver and
// commit, and when. benchmarks/record.py reads, checks and writes the same schema.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/device.hpp"

namespace rocm_sd::measurement {

inline constexpr int kRecordSchema = 1;

// {"schema", "benchmark", "command", "device", "driver", "system", "commit", "date"}; date in UTC, ISO 8601.
nlohmann::ordered_json record_head(const std::string& benchmark, Device& device);

// This process's command line, the program without its folder, words quoted where a shell needs it.
std::string command_line();

// The commit that the program was compiled from, "... with uncommitted changes", or "unknown" outside a
// checkout.
std::string built_from_commit();

}  // namespace rocm_sd::measurement
