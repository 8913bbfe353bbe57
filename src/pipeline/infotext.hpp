// The `parameters` text of AUTOMATIC1111: "<prompt>\nNegative prompt: ...\nSteps: 20, Sampler: ..., Key:
// value".
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rocm_sd {

struct Infotext {
  std::string prompt, negative_prompt;
  std::vector<std::pair<std::string, std::string>> fields;  // in order: "Steps" -> "20"

  // The value of a field, or "" where it is absent.
  std::string get(std::string_view key) const;
};

// A value that holds a comma, colon or newline is written as a JSON string, as A1111 does, and one that
// begins with a quotation mark, which no reader could tell from such a string.
std::string format_infotext(const Infotext& info);

// Reads any text: what does not look like parameters becomes the prompt. The last line counts as fields if it
// has at least three "Key: value" pairs (A1111's rule), so that a prompt that ends in "Steps: 1" forges
// nothing by itself.
Infotext parse_infotext(std::string_view text);

}  // namespace rocm_sd
