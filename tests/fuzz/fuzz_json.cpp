// Fuzzes the JSON of config.json, model_index.json and scheduler_config.json: an accepted text must survive a
// round trip.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The first byte says whether Python's NaN and Infinity may stand there.
  const bool nonfinite = size > 0 && data[0] == 'N';
  if (nonfinite) ++data, --size;
  const rocm_sd::JsonLimits limits{
      .max_bytes = 1 << 16, .max_depth = 8, .max_values = 1000, .nonfinite_as_text = nonfinite};
  try {
    const nlohmann::json value =
        rocm_sd::parse_json({reinterpret_cast<const char*>(data), size}, limits, "fuzz");
    // Text may grow when it is written anew (numbers), so only the values are compared.
    if (rocm_sd::parse_json(value.dump(), {.max_bytes = 1 << 20}, "again") != value) __builtin_trap();
  } catch (const rocm_sd::Error&) {
  }
  return 0;
}
