#include "server/job_joining.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>

#include "base/error.hpp"
#include "text/prompt.hpp"

namespace rocm_sd::server {
namespace {

// Options that change the rows, the maps or the passes of the UNet where they have a value that acts.
constexpr std::string_view kOfLoneJobs[] = {"control",     "deep-cache", "denoising-end", "denoising-start",
                                            "freeu",       "freeu-v2",   "hires-height",  "hires-scale",
                                            "hires-width", "ip-adapter", "pag-scale",     "region",
                                            "sada",        "sag-scale",  "t-gate",        "tile-size",
                                            "tiling",      "tiling-x",   "tiling-y",      "token-merge"};

bool acts(const std::string& value) {
  double number = 1;
  const char* const end = value.data() + value.size();
  const auto read = std::from_chars(value.data(), end, number);
  return !(value.empty() || value == "false" || value == "none" || (read.ptr == end && number == 0));
}

bool draws_alone(const JobRequest& r) {
  if (!r.enlargement.upscaler.empty()) return true;
  if (std::ranges::any_of(r.files, [](const Attachment& file) { return file.option != "init-image"; }))
    return true;
  return std::ranges::any_of(r.options, [](const auto& option) {
    return std::ranges::find(kOfLoneJobs, option.first) != std::end(kOfLoneJobs) && acts(option.second);
  });
}

// In their order, which decides what merging rounds.
std::string merged_loras(const JobRequest& r) {
  std::string listed, tagged, first_prompt, image_prompt;
  bool plain = false;
  for (const auto& [name, value] : r.options) {
    if (name == "lora") listed += "\n" + value;
    if (name == "prompt") first_prompt = value;
    if (name == "image-prompt" && image_prompt.empty()) image_prompt = value;
    if (name == "plain-prompt") plain = acts(value);
  }
  if (!plain)
    for (const LoraTag& tag : extract_lora_tags(image_prompt.empty() ? first_prompt : image_prompt).loras)
      tagged += concat("\n", tag.name, ":", tag.weight, ":", tag.te_weight, ":", tag.blocks);
  return tagged + listed;
}

}  // namespace

std::string joining_key(const JobRequest& r, const JoiningRules& rules) {
  if (draws_alone(r)) return "";
  int width = 0, height = 0;
  std::string lora_mode = rules.lora_mode;
  for (const auto& [name, value] : r.options) {
    if (name == "lora-mode") lora_mode = value;
    if (name != "width" && name != "height") continue;
    std::from_chars(value.data(), value.data() + value.size(), name == "width" ? width : height);
  }
  if (width == 0 || height == 0) {
    if (!r.files.empty()) return "";  // the size is the image's, which is not read here
    const auto [w, h] = rules.default_size ? rules.default_size(r.model) : std::pair{0, 0};
    if (width == 0) width = w;
    if (height == 0) height = h;
  }
  return concat(r.model, "\n", width, "x", height, lora_mode == "runtime" ? std::string() : merged_loras(r));
}

}  // namespace rocm_sd::server
