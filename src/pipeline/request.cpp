#include "pipeline/request.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "pipeline/hires.hpp"
#include "pipeline/ip_request.hpp"
#include "pipeline/preview.hpp"
#include "pipeline/prompt_texts.hpp"
#include "pipeline/request_guidance.hpp"
#include "pipeline/savings.hpp"
#include "pipeline/soft_inpaint.hpp"
#include "text/chunks.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kMaxSide = 4096;

int64_t random_seed() {
  std::random_device device;  // 32 bits, as the web UIs draw seeds, so that they can be typed in again
  return device();
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
  require_part(r.denoising_start.value_or(0), r.denoising_end.value_or(1), "denoising");
  for (const int side :
       {r.original_width, r.original_height, r.crop_left, r.crop_top, r.target_width, r.target_height,
        r.negative_original_width.value_or(0), r.negative_original_height.value_or(0),
        r.negative_crop_left.value_or(0), r.negative_crop_top.value_or(0),
        r.negative_target_width.value_or(0), r.negative_target_height.value_or(0)})
    require<UsageError>(side >= 0 && side <= 65536, "size conditions: expected 0 to 65536, got ", side);
  check_guidance_numbers(r);
  require_range(r.strength, 0, 1, "strength");
  require_range(r.variation_strength, 0, 1, "variation-strength");
  require_range(r.aesthetic_score, 0, 100, "aesthetic-score");
  require_range(r.negative_aesthetic_score, 0, 100, "negative-aesthetic-score");
  emphasis_from_name(r.emphasis);
  check_hires(r);
  check_preview(r.preview);
  check_inpainting(r);
  require<UsageError>((r.seed_resize_width > 0) == (r.seed_resize_height > 0) && r.seed_resize_width >= 0 &&
                          r.seed_resize_width <= kMaxSide && r.seed_resize_height <= kMaxSide,
                      "seed-resize-width, seed-resize-height: expected both, 8 to ", kMaxSide, ", got ",
                      r.seed_resize_width, " and ", r.seed_resize_height);
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
  if (out.strength < 1 && r.exact_steps) {
    const double all = r.steps / std::min(r.strength, 0.999);
    require<UsageError>(r.strength > 0 && all <= 1000, "exact-steps: ", r.steps, " steps at strength ",
                        r.strength, " are the last of a schedule of more than 1000");
    s.steps = static_cast<int>(all);
    s.kept_steps = r.steps;
    s.strength = 1;
  }
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

// What is given for each image decides how many there are, or is as many.
void resolve_batch(GenerateRequest& r) {
  const auto take = [&r](const char* name, size_t count) {
    if (count == 0) return;
    require<UsageError>(count <= 64 && (r.batch == 1 || static_cast<size_t>(r.batch) == count), name,
                        ": expected one for each of ", r.batch, " images, got ", count);
    r.batch = static_cast<int>(count);
  };
  take("image-prompt", r.prompts.size());
  if (!r.prompts.empty()) r.prompt = r.prompts.front();
  take("seeds", r.seeds.size());
  require<UsageError>(r.negative_prompts.empty() || static_cast<int>(r.negative_prompts.size()) == r.batch,
                      "negative prompts: expected one for each of ", r.batch, " images, got ",
                      r.negative_prompts.size());
  if (r.seeds.empty()) return;
  require<UsageError>(std::ranges::all_of(r.seeds, [](int64_t seed) { return seed >= 0; }),
                      "seeds: expected 0 or more each");
  require<UsageError>(r.variation_strength == 0, "seeds: not with a variation; expected one seed");
  r.seed = r.seeds.front();
}

}  // namespace

uint64_t image_seed(const GenerateRequest& r, int index) {
  if (!r.seeds.empty()) return static_cast<uint64_t>(r.seeds.at(static_cast<size_t>(index)));
  return static_cast<uint64_t>(r.seed + (r.variation_strength > 0 ? 0 : index));
}

std::string image_negative(const GenerateRequest& r, size_t index) {
  return r.negative_prompts.empty() ? r.negative_prompt.value_or("") : r.negative_prompts.at(index);
}

ResolvedRequest resolve_request(const GenerateRequest& request, const Components& components,
                                const NoiseSchedule& schedule) {
  const auto check_text = [](const char* name, const std::string& text) {
    const std::string problem = utf8_problem(text);
    require<UsageError>(problem.empty(), name, ": ", problem);
  };
  for (const std::string& prompt : image_prompts(request)) check_text("prompt", prompt);
  for (const RegionUse& region : request.regions) check_text("region", region.prompt);
  check_text("negative-prompt", request.negative_prompt.value_or(""));
  for (const std::string& text : request.negative_prompts) check_text("negative-prompt", text);
  check_text("prompt-2", request.prompt_2.value_or(""));
  check_text("negative-prompt-2", request.negative_prompt_2.value_or(""));
  check_numbers(request);
  check_pictures(request, components);
  ResolvedRequest out;
  out.request = request;
  GenerateRequest& r = out.request;
  resolve_batch(r);
  if (!r.init_images.empty()) {
    r.batch = static_cast<int>(r.init_images.size());
    if (!r.init_image) r.init_image = r.init_images.front();
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
  const bool soft = soft_settings(r.mask_blend).has_value();
  require<UsageError>(r.mask_blend == "denoised" || r.mask_blend == "latents" || soft,
                      "mask-blend: expected denoised, latents or soft, got \"", printable(r.mask_blend),
                      "\"");
  require<UsageError>(!soft || !components.is_inpainting(),
                      "mask-blend: soft: not for an inpainting model, which has inputs for the mask");
  out.blends_latents = r.mask_blend == "latents";
  require<UsageError>(r.preview.mode != "tae" || components.tiny_vae,
                      "preview: tae: no AutoencoderTiny is loaded; expected --taesd, or proj or vae");
  out.masked_content = masked_content(r);
  out.samples_posterior = r.vae_sample == "posterior";
  out.mask_downscale = parse_mask_downscale(r.mask_downscale, components);
  // Instruct-pix2pix reads the picture through its extra channels and starts from noise.
  const bool from_picture = (r.init_image || !r.init_latents.empty()) && !components.is_instruct();
  out.strength = from_picture && !r.denoising_start ? r.strength : 1.0;
  out.sampling = plan_sampling(schedule, sampling_request(out, components));
  r.tile_overlap = resolved_tile_overlap(r, components.downscale());
  out.tiles = make_tile_grid(r, out.latent_height, out.latent_width, components.downscale());
  out.controls = resolve_controls(r);
  out.ip_adapters = resolve_ip_adapters(r, r.tile_size > 0);
  cut_schedule(out, schedule);
  resolve_guidance(out, components);
  resolve_savings(out, components);
  return out;
}

}  // namespace rocm_sd
