// The texts that a request's prompts come to: prompt editing, alternating words and AND taken apart.
#pragma once

#include <string>
#include <vector>

#include "pipeline/request.hpp"

namespace rocm_sd {

constexpr size_t kMaxPromptTexts = 256;  // different ones of a request

struct PromptText {
  std::string first, second;  // what the text encoders read
  bool negative = false;
  int64_t image = 0;  // the first one whose LoRAs the text encoders read it with
};

struct PromptTexts {
  std::vector<PromptText> texts;  // each once, the negative ones first
  // Which text each condition of the UNet's batch reads at each of its calls, [calls][conditions], or, of a
  // request with a prompt for each image, [calls][conditions*images]; the last entry also serves what comes
  // after it.
  std::vector<std::vector<int64_t>> calls;
  std::vector<std::string> warnings;  // each once
};

// The parts that AND joins, and what of a prompt is tags (<lora:...>) left out; plain prompts have one part.
std::vector<PromptPart> prompt_parts(const GenerateRequest& request, const std::string& prompt);

// Throws UsageError for prompts that cannot be read, for more than kMaxPromptTexts texts, and where prompt-2
// has another number of parts.
PromptTexts prompt_texts(const ResolvedRequest& resolved);

}  // namespace rocm_sd
