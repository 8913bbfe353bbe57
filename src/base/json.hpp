// Strict reading of JSON from untrusted files: size, depth and count limits, no duplicate keys, no bytes
// after the value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace rocm_sd {

struct JsonLimits {
  uint64_t max_bytes = 16u << 20;
  int max_depth = 16;               // containers inside containers; 1 is a flat object
  uint64_t max_values = 1'000'000;  // scalars, objects and arrays together
  // Python writes NaN, Infinity and -Infinity, which JSON does not have (Diffusers' scheduler configurations
  // hold "lambda_min_clipped": -Infinity). They read as strings of their names where this is set, so that no
  // reader takes them for a missing number, and are refused otherwise.
  bool nonfinite_as_text = false;
};

// Parses one JSON value. Throws FormatError naming `what` (usually a path) on a syntax error, invalid UTF-8,
// an embedded NUL, a duplicate key, a number that double cannot hold, or a limit passed.
nlohmann::json parse_json(std::string_view text, const JsonLimits& limits, std::string_view what);

// The same from a regular file; FileError where it cannot be read.
nlohmann::json parse_json_file(const std::filesystem::path& path, const JsonLimits& limits = {});

}  // namespace rocm_sd
