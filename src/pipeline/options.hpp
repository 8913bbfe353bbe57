// The options of loading and generating, by name: one table behind the command line, the C interface and the
// config file.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {

struct OptionTargets {
  LoadOptions* load = nullptr;         // null: loading options are refused
  GenerateRequest* request = nullptr;  // null: generating options are refused
};

struct OptionRow {
  const char* name;        // "cfg-scale"
  const char* short_name;  // "n", or ""
  const char* group;       // of the help text: "Model", "Prompt", "Picture", "Sampling", "Image to image",
                           // "ControlNet", "IP-Adapter", "Tiles", "Savings", "Advanced"
  const char* value;       // placeholder: "FILE", "N"; "" for a flag
  const char* help;
  std::function<void(OptionTargets&, std::string_view value)>
      set;               // throws UsageError without the option's name
  bool repeats = false;  // each time adds to a list; of others the last counts
};

std::span<const OptionRow> option_rows();

// Sets one option from text. Throws UsageError: unknown name (with the nearest known one), or "steps:
// expected ...".
void set_option(OptionTargets& targets, std::string_view name, std::string_view value);

// Strict numbers: the whole text, finite, in range; UsageError says what was expected and what came.
int64_t parse_integer(std::string_view text, int64_t least, int64_t most);
double parse_number(std::string_view text, double least, double most);
uint64_t parse_bytes(std::string_view text);  // "6G": units K, M and G of 1024, or plain bytes

}  // namespace rocm_sd
