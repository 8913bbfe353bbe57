#include "pipeline/distilled.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

struct Family {
  const char* mark;  // in the name, lower case with "-"
  int steps;
  double cfg_scale;
  const char *sampler, *schedule;
};

// As their authors publish them. What comes first counts: "lightning-lcm" is no name of any.
constexpr Family kFamilies[] = {
    {"lightning", 4, 1, "euler", "trailing"},     // ByteDance/SDXL-Lightning: Euler, trailing, no guidance
    {"hyper-sd", 8, 1, "ddim_trailing", "auto"},  // ByteDance/Hyper-SD: DDIM, trailing, no guidance
    {"hypersd", 8, 1, "ddim_trailing", "auto"},   //
    {"dmd2", 4, 1, "lcm", "auto"},                // tianweiy/DMD2: LCM's scheduler, no guidance
    {"tcd", 4, 1, "tcd", "auto"},                 // Zheng et al. 2024
    {"lcm", 4, 1.5, "lcm", "auto"},               // Luo et al. 2023: 4 to 8 steps, a scale of 1 to 2
    {"turbo", 4, 1, "euler_a", "trailing"},       // stabilityai: 1 to 4 steps, Euler a, no guidance
};

bool is_alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// "lightning-4step", "hyper-sdxl-8-steps-lora", "dmd2-sdxl-1step": the number in front of "step"; or 0.
int steps_in_name(std::string_view name) {
  for (size_t at = name.find("step"); at != name.npos; at = name.find("step", at + 1)) {
    size_t end = at;
    if (end > 0 && name[end - 1] == '-') --end;
    size_t begin = end;
    while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
    const bool alone = begin == 0 || !is_alnum(name[begin - 1]);
    if (begin == end || end - begin > 2 || !alone) continue;
    const int steps = std::stoi(std::string(name.substr(begin, end - begin)));
    if (steps >= 1 && steps <= 50) return steps;
  }
  return 0;
}

// The mark as a word, or words, of the name.
bool has_mark(std::string_view name, std::string_view mark) {
  for (size_t at = name.find(mark); at != name.npos; at = name.find(mark, at + 1)) {
    const size_t end = at + mark.size();
    const bool short_mark = mark.size() <= 4;  // "lcm" within a longer word is none
    const bool begins = at == 0 || !is_alnum(name[at - 1]), ends = end == name.size() || !is_alnum(name[end]);
    if (!short_mark || (begins && ends)) return true;
  }
  return false;
}

}  // namespace

SamplingProposal propose_sampling(const UNetConfig& unet, std::string_view scheduler_class,
                                  std::string_view name, bool own_sampling) {
  std::string lower;
  for (const char c : name)
    lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c == '_' || c == ' ' || c == '.' ? '-' : c;
  SamplingProposal out;
  const auto found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                  [&](const Family& family) { return has_mark(lower, family.mark); });
  if (unet.time_cond_width > 0) {  // the scale is an input, which it was distilled with at 3 to 15
    out = {.reason = "its UNet takes the scale of guidance as an input (LCM)",
           .steps = 4,
           .cfg_scale = 8,
           .sampler = "lcm"};
  } else if (found != std::end(kFamilies)) {
    out = {.reason = concat("its name has \"", found->mark, "\" in it"),
           .steps = found->steps,
           .cfg_scale = found->cfg_scale,
           .sampler = found->sampler,
           .schedule = found->schedule};
  } else if (scheduler_class == "LCMScheduler" || scheduler_class == "TCDScheduler") {
    const bool lcm = scheduler_class == "LCMScheduler";
    out = {.reason = concat("its scheduler is ", scheduler_class),
           .steps = 4,
           .cfg_scale = lcm ? 1.5 : 1,
           .sampler = lcm ? "lcm" : "tcd"};
  } else {
    return out;
  }
  if (const int steps = steps_in_name(lower); steps > 0) out.steps = steps;
  // Hyper-SD's files whose names say so keep their guidance (5 to 8).
  if (has_mark(lower, "cfg") && lower.find("hyper") != lower.npos) out.cfg_scale = 5;
  if (own_sampling) out.sampler = out.schedule = "auto";
  return out;
}

std::string describe_smaller_unet(const UNetConfig& unet, ModelKind kind) {
  const bool no_middle = !unet.mid.has_value();
  const bool plain_middle = unet.mid && unet.mid->transformer_layers.empty();
  if (kind == ModelKind::kSdxl && no_middle)
    return "its UNet is Segmind-Vega's: SDXL with fewer layers, guided as SDXL is";
  if (kind == ModelKind::kSdxl && plain_middle)
    return "its UNet is SSD-1B's: SDXL with fewer layers, guided as SDXL is";
  if (kind == ModelKind::kSd1 && no_middle)
    return "its UNet is small-sd's or tiny-sd's: SD 1 with fewer layers, guided as SD 1 is";
  return "";
}

}  // namespace rocm_sd
