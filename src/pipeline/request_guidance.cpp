#include "pipeline/request_guidance.hpp"

#include <cmath>

#include "base/error.hpp"
#include "base/text.hpp"
#include "pipeline/prompt_texts.hpp"
#include "pipeline/regions.hpp"

namespace rocm_sd {

void require_range(double value, double least, double most, const char* name) {
  require<UsageError>(std::isfinite(value) && value >= least && value <= most, name,
                      ": expected a number from ", least, " to ", most, ", got ", value);
}

void require_part(double start, double end, const std::string& option) {
  const std::string first = option + "-start", second = option + "-end";
  require_range(start, 0, 1, first.c_str());
  require_range(end, 0, 1, second.c_str());
  require<UsageError>(start < end, first, ", ", second, ": expected the first below the second, got ", start,
                      " and ", end);
}

void check_guidance_numbers(const GenerateRequest& r) {
  require_range(r.cfg_scale, -100, 100, "cfg-scale");
  require_range(r.image_cfg_scale, 0, 100, "image-cfg-scale");
  require_range(r.guidance_rescale, 0, 1, "guidance-rescale");
  require_range(r.guidance_start, 0, 1, "guidance-start");
  require_range(r.guidance_end, 0, 1, "guidance-end");
  require<UsageError>(r.guidance_start <= r.guidance_end,
                      "guidance-start, guidance-end: expected the first not above the second, got ",
                      r.guidance_start, " and ", r.guidance_end);
  require_range(r.negative_min_sigma, 0, 100, "negative-min-sigma");
  require_range(r.dynamic_threshold, 0, 1, "dynamic-threshold");
  require_range(r.dynamic_threshold_max, 1, 1000, "dynamic-threshold-max");
  require_range(r.mimic_scale, 0, 100, "mimic-scale");
  require_range(r.pag_scale, 0, 100, "pag-scale");
  require<UsageError>(r.freeu.empty() || r.freeu.size() == 4, "freeu: expected b1,b2,s1,s2, got ",
                      r.freeu.size(), " numbers");
  for (const double factor : r.freeu) require_range(factor, 0, 10, "freeu");
  require<UsageError>(r.freeu_v2.empty() || r.freeu_v2.size() == 4, "freeu-v2: expected b1,b2,s1,s2, got ",
                      r.freeu_v2.size(), " numbers");
  for (const double factor : r.freeu_v2) require_range(factor, 0, 10, "freeu-v2");
  require<UsageError>(r.freeu.empty() || r.freeu_v2.empty(), "freeu, freeu-v2: expected one of them");
  require_range(r.sag_scale, 0, 100, "sag-scale");
  require<UsageError>(r.mimic_percentile > 0 && r.mimic_percentile <= 1,
                      "mimic-percentile: expected a number above 0, at most 1, got ", r.mimic_percentile);
}

namespace {

// Whether the name contains the pattern, in which "." is any character.
bool contains(std::string_view name, std::string_view pattern) {
  for (size_t at = 0; at + pattern.size() <= name.size(); ++at) {
    size_t i = 0;
    while (i < pattern.size() && (pattern[i] == '.' || pattern[i] == name[at + i])) ++i;
    if (i == pattern.size()) return true;
  }
  return false;
}

// Of the UNet's self attentions, those that Diffusers' pag_applied_layers mean.
std::vector<bool> find_layers(const UNet& unet, std::string_view list) {
  const std::vector<std::string>& names = unet.self_attentions();
  std::vector<bool> out(names.size(), false);
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view pattern = list.substr(begin, end - begin);
    bool found = false;
    for (size_t i = 0; i < names.size(); ++i)
      if (!pattern.empty() && contains(names[i], pattern)) out[i] = found = true;
    require<UsageError>(found, "pag-layers: no self attention of this model's UNet is named \"",
                        printable(pattern, 60), "\"; they are ", names.empty() ? "none" : names.front(),
                        " to ", names.empty() ? "none" : names.back());
    begin = end + 1;
  }
  return out;
}

// Options that change when and how guidance acts, on what is guided by one prompt and its negative prompt.
void check_guidance_options(ResolvedRequest& out, const Components& c) {
  const GenerateRequest& r = out.request;
  const bool at_times = r.guidance_start > 0 || r.guidance_end < 1 || r.negative_min_sigma > 0;
  require<UsageError>(!at_times || !c.is_instruct(),
                      "guidance-start, guidance-end, negative-min-sigma: not for an instruct-pix2pix model");
  require<UsageError>(r.mimic_scale == 0 || out.conditions <= 2,
                      "mimic-scale: not defined for AND and instruct-pix2pix models");
  require<UsageError>(
      r.mimic_scale == 0 || r.guidance_rescale == 0,
      "mimic-scale, guidance-rescale: both change the values of guidance; expected one of them");
  const bool plain = r.guidance_rescale == 0 && r.mimic_scale == 0;
  require<UsageError>(r.pag_scale == 0 || (plain && out.conditions <= 2),
                      "pag-scale: not with AND, instruct-pix2pix "
                      "models, guidance-rescale and mimic-scale");
  require<UsageError>(r.sag_scale == 0 || (r.mimic_scale == 0 && out.conditions <= 2),
                      "sag-scale: not with AND, regions, instruct-pix2pix models and mimic-scale");
  require<UsageError>(r.sag_scale == 0 || r.tile_size == 0,
                      "sag-scale: not with tile-size: its windows have attention maps of their own");
  require<UsageError>(r.sag_scale == 0 || (out.latent_height > 4 && out.latent_width > 4),
                      "sag-scale: expected latents of 5 a side or more, got ", out.latent_width, " x ",
                      out.latent_height);
  require<UsageError>(r.sag_scale == 0 || c.unet->middle_self_attention().has_value(),
                      "sag-scale: this model's UNet has no self attention in a middle block");
  if (r.pag_scale > 0) out.perturbed_layers = find_layers(*c.unet, r.pag_layers);
  if (out.conditions == 1 && (at_times || r.mimic_scale > 0))
    out.warnings.emplace_back(
        "guidance-start, guidance-end, negative-min-sigma, mimic-scale: no effect: there is no guidance");
}

// The parts that AND joins are conditions of their own, and so is the negative prompt beside them.
void resolve_parts(ResolvedRequest& out, const Components& c) {
  const std::vector<PromptPart> parts = prompt_parts(out.request, out.request.prompt);
  for (const PromptPart& part : parts) out.part_weights.push_back(part.weight);
  const int count = static_cast<int>(parts.size());
  resolve_regions(out);
  const bool regional = !out.region_shares.empty();
  require<UsageError>(!regional || count == 1, "region: not with AND in the prompt");
  require<UsageError>(!regional || !c.is_instruct(), "region: not for an instruct-pix2pix model");
  require<UsageError>(!regional || (out.request.pag_scale == 0 && out.request.sag_scale == 0),
                      "region: not with pag-scale and sag-scale, which follow one prompt");
  require<UsageError>(count == 1 || !c.is_instruct(), "prompt: AND joins ", count,
                      " parts; an instruct-pix2pix model takes one");
  require<UsageError>(count == 1 || out.request.guidance_rescale == 0,
                      "guidance-rescale: not defined for a prompt of ", count, " parts joined by AND");
  if (count == 1 && parts[0].weight != 1) {
    out.warnings.push_back(concat("prompt: it ends in \":", parts[0].weight,
                                  "\", which is the weight of the whole prompt, as in A1111, and not drawn"));
    if (!c.takes_guidance()) out.guidance *= parts[0].weight;
  }
  const bool unguided = out.guidance == 1.0 && (c.takes_guidance() || !out.sampling.sampler->uses_negative);
  out.conditions = c.is_instruct() ? 3 : count > 1 ? 1 + count : unguided ? 1 : 2;
  check_guidance_options(out, c);
  if (regional) {  // guidance sees one prediction of them
    const auto regions = static_cast<int>(out.region_shares.size());
    out.part_weights.assign(out.region_shares.size(), 1);
    out.conditions += regions - 1;
  }
  out.perturbed = out.request.pag_scale > 0;
  if (out.perturbed) ++out.conditions;
  const bool two_calls = out.sampling.sampler->unet_calls(100) > 150;  // of a step
  out.text_calls = out.request.steps * (two_calls ? 2 : 1);
}

}  // namespace

void resolve_guidance(ResolvedRequest& out, const Components& c) {
  const double scale = out.request.cfg_scale;
  out.guidance = scale;
  if (c.takes_guidance()) {
    out.guidance = 1;
    if (out.request.negative_prompt.value_or("") != "")
      out.warnings.push_back(
          "negative-prompt: no effect: this model takes the scale of guidance as an input of its UNet");
  } else if (scale < 1 && !c.distilled.empty() && !c.is_instruct()) {
    out.guidance = 1;
    out.warnings.push_back(concat("cfg-scale ", scale,
                                  ": no guidance, as for any scale up to 1: this model is distilled (",
                                  c.distilled, ")"));
  } else if (scale < 1) {
    out.warnings.push_back(concat(
        "cfg-scale ", scale,
        scale == 0 ? ": the negative prompt alone is drawn" : ": the picture goes away from the prompt",
        "; 1 is no guidance"));
  }
  resolve_parts(out, c);
}

}  // namespace rocm_sd
