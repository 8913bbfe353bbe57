#include "server/job_joining.hpp"

#include <algorithm>
#include <charconv>

#include "base/error.hpp"

namespace rocm_sd::server {
namespace {

bool is_own(const std::string& option) {
  return option == "prompt" || option == "negative-prompt" || option == "seed";
}

// LoRAs are merged for all images of a batch, and parts joined by AND are conditions of its UNet calls.
bool changes_batch(const std::string& prompt) {
  return prompt.find('<') != prompt.npos || prompt.find("AND") != prompt.npos;
}

bool draws_alone(const JobRequest& r) {
  if (r.rounds != 1 || r.batch != 1 || r.partials > 0 || !r.files.empty() || !r.enlargement.upscaler.empty())
    return true;
  return std::ranges::any_of(r.options, [](const auto& option) {
    const std::string& name = option.first;
    return name.starts_with("hires-") || name.starts_with("variation-") || name == "image-prompt" ||
           (name.ends_with("prompt") && changes_batch(option.second));
  });
}

}  // namespace

std::string joining_key(const JobRequest& r) {
  if (draws_alone(r)) return "";
  std::vector<std::string> parts;
  for (const auto& [name, value] : r.options) {
    if (name == "negative-prompt") parts.emplace_back("has a negative prompt");
    if (!is_own(name)) parts.push_back(name + "=" + value);
  }
  std::ranges::sort(parts);
  std::string key = concat(r.model, "\n", r.format, "\n", r.quality, "\n", r.metadata, "\n", r.steps_factor);
  for (const std::string& part : parts) key += "\n" + part;
  return key;
}

JoinedTexts joined_texts(const JobRequest& r) {
  JoinedTexts out;
  for (const auto& [name, value] : r.options) {
    if (name == "prompt") out.prompt = value;
    if (name == "negative-prompt") out.negative_prompt = value;
    int64_t seed = -1;
    if (name == "seed") std::from_chars(value.data(), value.data() + value.size(), seed);
    if (name == "seed" && seed >= 0) out.seed = seed;
  }
  return out;
}

}  // namespace rocm_sd::server
