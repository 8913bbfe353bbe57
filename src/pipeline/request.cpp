#include "pipeline/request.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/utf8.hpp"
#include "pipeline/infotext.hpp"
#include "pipeline/prompt_texts.hpp"
#include "text/chunks.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMaxSide = 4096;

int64_t random_seed() {
  std::random_device device;  // 32 bits, as the web UIs draw seeds, so that they can be typed in again
  return device();
}

void require_range(double value, double least, double most, const char* name) {
  require<UsageError>(std::isfinite(value) && value >= least && value <= most, name,
                      ": expected a number from ", least, " to ", most, ", got ", value);
}

int64_t checked_side(int64_t side, const char* name, int64_t multiple) {
  require<UsageError>(side >= multiple && side <= kMaxSide && side % multiple == 0, name,
                      ": expected a multiple of ", multiple, " from ", multiple, " to ", kMaxSide, ", got ",
                      side);
  return side;
}

void check_numbers(const GenerateRequest& r) {
  require<UsageError>(r.steps >= 1 && r.steps <= 1000, "steps: expected 1 to 1000, got ", r.steps);
  require<UsageError>(r.batch >= 1 && r.batch <= 64, "batch: expected 1 to 64, got ", r.batch);
  require<UsageError>(r.clip_skip >= 0, "clip-skip: expected 0 or more, got ", r.clip_skip);
  require<UsageError>(r.seed >= -1, "seed: expected -1 or more, got ", r.seed);
  const int64_t largest = std::numeric_limits<int64_t>::max() - (r.batch - 1);  // picture i has seed + i
  require<UsageError>(r.seed <= largest && r.variation_seed <= largest, "seed: expected at most ", largest,
                      " for ", r.batch, " pictures, got ", std::max(r.seed, r.variation_seed));
  require<UsageError>(r.mask_blur >= 0 && r.mask_blur <= 64, "mask-blur: expected 0 to 64, got ",
                      r.mask_blur);
  const double start = r.denoising_start.value_or(0), end = r.denoising_end.value_or(1);
  require_range(start, 0, 1, "denoising-start");
  require_range(end, 0, 1, "denoising-end");
  require<UsageError>(start < end,
                      "denoising-start, denoising-end: expected the first below the second, got ", start,
                      " and ", end);
  for (const int side :
       {r.original_width, r.original_height, r.crop_left, r.crop_top, r.target_width, r.target_height,
        r.negative_original_width.value_or(0), r.negative_original_height.value_or(0),
        r.negative_crop_left.value_or(0), r.negative_crop_top.value_or(0),
        r.negative_target_width.value_or(0), r.negative_target_height.value_or(0)})
    require<UsageError>(side >= 0 && side <= 65536, "size conditions: expected 0 to 65536, got ", side);
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
  require<UsageError>(r.mimic_percentile > 0 && r.mimic_percentile <= 1,
                      "mimic-percentile: expected a number above 0, at most 1, got ", r.mimic_percentile);
  require_range(r.strength, 0, 1, "strength");
  require_range(r.variation_strength, 0, 1, "variation-strength");
  require_range(r.aesthetic_score, 0, 100, "aesthetic-score");
  require_range(r.negative_aesthetic_score, 0, 100, "negative-aesthetic-score");
  emphasis_from_name(r.emphasis);
}

void check_pictures(const GenerateRequest& r, const Components& c) {
  require<UsageError>(!r.mask || r.init_image, "mask: needs an init-image to repaint");
  require<UsageError>(!c.is_instruct() || r.init_image,
                      "init-image: this instruct-pix2pix model edits a picture, expected one");
  require<UsageError>(!c.is_inpainting() || !r.mask || r.init_image,
                      "init-image: this inpainting model needs the picture that the mask belongs to");
  require<UsageError>(
      !c.is_depth() || (r.depth && (r.init_image || !r.init_latents.empty())),
      "depth, init-image: this depth model redraws a picture by its depth map, expected both");
  require<UsageError>(!r.denoising_start || r.init_image || !r.init_latents.empty(),
                      "denoising-start: needs latents or an init-image to go on from");
  require<UsageError>(r.init_latents.empty() || !r.mask || r.init_image,
                      "init latents: with a mask expected the picture, too");
}

// The size: as asked, else the init image's (rounded down to a multiple of 8), else the model's own.
void resolve_size(ResolvedRequest& out, const Components& c) {
  const GenerateRequest& r = out.request;
  const int64_t multiple = std::max<int64_t>(8, c.downscale());
  const auto own = [&](int64_t asked, int Image::* side, int64_t models) -> int64_t {
    if (asked != 0) return asked;
    if (!r.init_image) return models;
    return std::clamp<int64_t>((*r.init_image).*side / multiple * multiple, multiple, kMaxSide);
  };
  out.width = checked_side(own(r.width, &Image::width, c.info.default_width), "width", multiple);
  out.height = checked_side(own(r.height, &Image::height, c.info.default_height), "height", multiple);
  out.latent_width = out.width / c.downscale();
  out.latent_height = out.height / c.downscale();
}

SamplingRequest sampling_request(const ResolvedRequest& out, const Components& c) {
  const GenerateRequest& r = out.request;
  SamplingRequest s;
  require<FormatError>(
      r.sampler != "auto" || c.sampling_refusal.empty(), c.sampling_refusal,
      "; to draw with another, name a sampler (--sampler) and a schedule (--schedule or --sigmas)");
  if (r.sampler == "auto" && c.native_sampling)
    s = *c.native_sampling;
  else if (r.sampler != "auto")
    s.sampler = r.sampler;
  set_schedule(s, r.schedule);
  // Diffusers' inpainting pipeline sets skip_prk_steps.
  if (r.mask && s.schedule_args.pndm == PndmStart::kRungeKutta) s.schedule_args.pndm = PndmStart::kPlms;
  s.schedule_args.sdxl = c.kind == ModelKind::kSdxl || c.kind == ModelKind::kSdxlRefiner;
  s.steps = r.steps;
  s.sigmas = r.sigmas;
  s.strength = out.strength;
  if (r.eta) s.options.eta = r.eta;
  if (r.dynamic_threshold > 0) s.options.thresholding = {r.dynamic_threshold, r.dynamic_threshold_max};
  return s;
}

// The part of the schedule that denoising_start and denoising_end leave, by Diffusers' rule: of the training
// timesteps, those from round(n - end * n) on, below round(n - start * n).
void cut_schedule(ResolvedRequest& out, const NoiseSchedule& noise) {
  const GenerateRequest& r = out.request;
  std::vector<NoiseLevel>& levels = out.sampling.schedule.levels;
  const auto cutoff = [&](double share) {
    const double steps = noise.train_steps();
    return std::nearbyint(steps - share * steps);
  };
  // The last level is where the picture is, not a step.
  const auto steps_from = [&](double least) {
    return std::count_if(levels.begin(), levels.end() - 1,
                         [&](const NoiseLevel& level) { return level.timestep >= least; });
  };
  if (r.denoising_end) {
    const auto kept = steps_from(cutoff(*r.denoising_end));
    out.sampling.cut_steps = out.sampling.schedule.steps() - static_cast<int>(kept);
    if (out.sampling.cut_steps > 0) out.sampling.finish_factor = 1;
    levels.resize(static_cast<size_t>(kept) + 1);
  }
  if (r.denoising_start) {
    const auto dropped = levels.size() > 1 ? steps_from(cutoff(*r.denoising_start)) : 0;
    levels.erase(levels.begin(), levels.begin() + dropped);
    out.sampling.skipped_steps += static_cast<int>(dropped);
  }
  if (r.denoising_start || r.denoising_end) out.sampling.schedule.calls.clear();  // PNDM goes by its levels
  require<UsageError>(levels.size() > 1, "denoising-start, denoising-end: no step is left of ", r.steps);
}

MaskDownscale parse_mask_downscale(const std::string& name, const Components& c) {
  if (name == "auto") return c.is_inpainting() ? MaskDownscale::kNearest : MaskDownscale::kArea;
  require<UsageError>(name == "area" || name == "nearest",
                      "mask-downscale: expected auto, area or nearest, got \"", printable(name), "\"");
  return name == "area" ? MaskDownscale::kArea : MaskDownscale::kNearest;
}

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
  const bool plain = r.guidance_rescale == 0 && r.mimic_scale == 0 && r.controls.empty();
  require<UsageError>(r.pag_scale == 0 || (plain && out.conditions <= 2),
                      "pag-scale: not with AND, instruct-pix2pix "
                      "models, guidance-rescale, mimic-scale and ControlNets");
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
  out.perturbed = out.request.pag_scale > 0;
  if (out.perturbed) ++out.conditions;
  const bool two_calls = out.sampling.sampler->unet_calls(100) > 150;  // of a step
  out.text_calls = out.request.steps * (two_calls ? 2 : 1);
}

// How the scale of guidance acts on this model, and how many conditions the UNet sees.
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

// "host: Xeon, 8 threads, AVX2" -> "host: Xeon, AVX2": the picture does not depend on the threads, so neither
// does its file.
std::string without_threads(std::string device) {
  const size_t end = device.find(" threads, ");
  const size_t begin = end == std::string::npos ? end : device.rfind(", ", end);
  return begin == std::string::npos ? device : device.erase(begin, end - begin + 8);
}

std::string number_text(double value) { return fmt::format("{}", value); }

}  // namespace

ResolvedRequest resolve_request(const GenerateRequest& request, const Components& components,
                                const NoiseSchedule& schedule) {
  const auto check_text = [](const char* name, const std::string& text) {
    const std::string problem = utf8_problem(text);
    require<UsageError>(problem.empty(), name, ": ", problem);
  };
  for (const std::string& prompt : image_prompts(request)) check_text("prompt", prompt);
  check_text("negative-prompt", request.negative_prompt.value_or(""));
  check_text("prompt-2", request.prompt_2.value_or(""));
  check_text("negative-prompt-2", request.negative_prompt_2.value_or(""));
  check_numbers(request);
  check_pictures(request, components);
  ResolvedRequest out;
  out.request = request;
  GenerateRequest& r = out.request;
  if (!r.prompts.empty()) {
    const auto count = static_cast<int>(r.prompts.size());
    require<UsageError>(count <= 64 && (r.batch == 1 || r.batch == count),
                        "image-prompt: expected one for each of ", r.batch, " images, got ", count);
    r.batch = count;
    r.prompt = r.prompts.front();
  }
  require<UsageError>(r.lora_mode == "merge" || r.lora_mode == "runtime",
                      "lora-mode: expected merge or runtime, got \"", printable(r.lora_mode), "\"");
  if (r.seed < 0) r.seed = random_seed();
  if (r.variation_strength > 0 && r.variation_seed < 0) r.variation_seed = random_seed();
  resolve_size(out, components);
  out.noise = parse_noise_kind(r.rng);
  const auto values = static_cast<size_t>(r.batch * 4 * out.latent_width * out.latent_height);
  require<UsageError>(r.initial_noise.empty() || r.initial_noise.size() == values, "initial noise: expected ",
                      values, " values, got ", r.initial_noise.size());
  require<UsageError>(r.init_latents.empty() || r.init_latents.size() == values, "init latents: expected ",
                      values, " values, got ", r.init_latents.size());
  require<UsageError>(
      std::all_of(r.init_latents.begin(), r.init_latents.end(), [](float v) { return std::isfinite(v); }),
      "init latents: expected finite values");
  require<UsageError>(r.vae_sample == "mean" || r.vae_sample == "posterior",
                      "vae-sample: expected mean or posterior, got \"", printable(r.vae_sample), "\"");
  require<UsageError>(r.mask_blend == "denoised" || r.mask_blend == "latents",
                      "mask-blend: expected denoised or latents, got \"", printable(r.mask_blend), "\"");
  out.blends_latents = r.mask_blend == "latents";
  out.samples_posterior = r.vae_sample == "posterior";
  out.mask_downscale = parse_mask_downscale(r.mask_downscale, components);
  // Instruct-pix2pix reads the picture through its extra channels and starts from noise.
  const bool from_picture = (r.init_image || !r.init_latents.empty()) && !components.is_instruct();
  out.strength = from_picture && !r.denoising_start ? r.strength : 1.0;
  out.sampling = plan_sampling(schedule, sampling_request(out, components));
  r.tile_overlap = resolved_tile_overlap(r, components.downscale());
  out.tiles = make_tile_grid(r, out.latent_height, out.latent_width, components.downscale());
  out.controls = resolve_controls(r);
  cut_schedule(out, schedule);
  resolve_guidance(out, components);
  return out;
}

std::string describe_image(const ResolvedRequest& resolved, const Components& components, int index,
                           const std::string& embedding_hashes,
                           const std::vector<std::shared_ptr<LoadedControl>>& controls) {
  const GenerateRequest& r = resolved.request;
  const bool varied = r.variation_strength > 0;
  Infotext info{r.prompts.empty() ? r.prompt : r.prompts.at(static_cast<size_t>(index)),
                r.negative_prompt.value_or(""),
                {}};
  // As tags, which A1111 and this program read back.
  for (const LoraUse& lora : r.loras)
    info.prompt += concat(" <lora:", std::filesystem::path(lora.file).stem().string(), ":", lora.te_weight,
                          lora.weight == lora.te_weight ? "" : concat(":", lora.weight),
                          lora.blocks.empty() ? "" : concat(":lbw=", lora.blocks), ">");
  const auto add = [&](const char* key, const std::string& value) { info.fields.emplace_back(key, value); };
  add("Steps", std::to_string(r.steps));
  add("Sampler", std::string(resolved.sampling.sampler->label));
  add("Schedule type", std::string(schedule_label(resolved.sampling.schedule_kind)));
  add("CFG scale", number_text(r.cfg_scale));
  add("Seed", std::to_string(varied ? r.seed : r.seed + index));
  add("Size", concat(resolved.width, "x", resolved.height));
  // A1111 shows the first ten digits.
  const auto add_hash = [&](const char* key, const std::shared_future<std::string>& hash) {
    if (hash.valid() && !hash.get().empty()) add(key, hash.get().substr(0, 10));
  };
  add_hash("Model hash", components.model_hash);
  add("Model", components.info.name);
  add_hash("VAE hash", components.vae_hash);
  if (!components.vae_name.empty()) add("VAE", components.vae_name);
  if (!components.tiny_vae && components.vae->config().half_size_finest)
    add("VAE decoder", "finest level at half size");
  std::string hashes;
  for (const auto* loras : {&components.adapters, &components.runtime_adapters})
    for (const ActiveAdapter& lora : *loras)
      hashes += concat(hashes.empty() ? "" : ", ", lora.name, ": ", lora.file->hash().substr(0, 12));
  if (!hashes.empty()) add("Lora hashes", hashes);
  if (!components.runtime_adapters.empty()) add("Lora mode", "runtime");
  if (!embedding_hashes.empty()) add("TI hashes", embedding_hashes);
  for (size_t i = 0; i < controls.size(); ++i)
    add(concat("ControlNet ", i).c_str(), describe_control(resolved.controls[i], *controls[i]));
  if (varied) {
    add("Variation seed", std::to_string(r.variation_seed + index));
    add("Variation seed strength", number_text(r.variation_strength));
  }
  const bool from_picture = (r.init_image || !r.init_latents.empty()) && !components.is_instruct();
  if (from_picture && !r.denoising_start) add("Denoising strength", number_text(r.strength));
  if (r.denoising_start) add("Denoising start", number_text(*r.denoising_start));
  if (r.denoising_end) add("Denoising end", number_text(*r.denoising_end));
  if (from_picture && resolved.samples_posterior) add("VAE sample", "posterior");
  if (components.is_instruct()) add("Image CFG scale", number_text(r.image_cfg_scale));
  if (r.mask) add("Mask blur", std::to_string(r.mask_blur));
  if (r.mask && resolved.blends_latents) add("Mask blend", "latents");
  if (r.mask && r.mask_downscale != "auto") add("Mask downscale", r.mask_downscale);
  if (r.clip_skip > 1) add("Clip skip", std::to_string(r.clip_skip));
  if (r.eta) add("Eta", number_text(*r.eta));
  if (r.guidance_rescale > 0) add("CFG Rescale phi", number_text(r.guidance_rescale));
  if (r.guidance_start > 0) add("Guidance start", number_text(r.guidance_start));
  if (r.guidance_end < 1) add("Guidance end", number_text(r.guidance_end));
  if (r.negative_min_sigma > 0) add("NGMS", number_text(r.negative_min_sigma));
  if (r.negative_min_sigma > 0 && r.negative_min_sigma_all) add("NGMS all steps", "True");
  if (r.dynamic_threshold > 0)
    add("Dynamic threshold",
        concat(number_text(r.dynamic_threshold), " of ", number_text(r.dynamic_threshold_max)));
  if (r.pag_scale > 0) add("PAG scale", number_text(r.pag_scale));
  if (r.pag_scale > 0 && r.pag_layers != "mid") add("PAG layers", r.pag_layers);
  if (!r.freeu.empty())
    add("FreeU", concat("b1 ", r.freeu[0], ", b2 ", r.freeu[1], ", s1 ", r.freeu[2], ", s2 ", r.freeu[3]));
  if (r.mimic_scale > 0) {
    add("Mimic scale", number_text(r.mimic_scale));
    add("Threshold percentile", number_text(100 * r.mimic_percentile));
  }
  if (resolved.noise == NoiseKind::kTorchCpu) add("RNG", "CPU");
  if (r.emphasis != "original") add("Emphasis", r.emphasis);
  if (r.plain_prompt) add("Plain prompt", "True");
  if (components.zero_absent_negative && r.negative_prompt == "") add("Empty negative prompt", "encoded");
  if (components.text.size() > 1 && r.prompt_2) add("Prompt 2", *r.prompt_2);
  if (components.text.size() > 1 && r.negative_prompt_2) add("Negative prompt 2", *r.negative_prompt_2);
  if (r.tile_size > 0) {
    add("Tile size", std::to_string(r.tile_size));
    add("Tile overlap", std::to_string(r.tile_overlap));
    add("Tile weights", r.tile_weights);
  }
  add("Device", without_threads(components.info.device));
  add("Compute type", components.info.dtype);
  add("Version", concat("rocm-sd ", version()));
  return format_infotext(info);
}

}  // namespace rocm_sd
