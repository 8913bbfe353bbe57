#include "pipeline/request.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.hpp"
#include "base/format.hpp"
#include "pipeline/infotext.hpp"
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
  require_range(r.cfg_scale, -100, 100, "cfg-scale");
  require_range(r.image_cfg_scale, 0, 100, "image-cfg-scale");
  require_range(r.guidance_rescale, 0, 1, "guidance-rescale");
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
}

// The size: as asked, else the init image's (rounded down to a multiple of 8), else the model's own.
void resolve_size(ResolvedRequest& out, const Components& c) {
  const GenerateRequest& r = out.request;
  const int64_t multiple = std::max<int64_t>(8, c.downscale());
  const auto own = [&](int64_t asked, int Image::* side) -> int64_t {
    if (asked != 0) return asked;
    if (!r.init_image) return c.default_size;
    return std::clamp<int64_t>((*r.init_image).*side / multiple * multiple, multiple, kMaxSide);
  };
  out.width = checked_side(own(r.width, &Image::width), "width", multiple);
  out.height = checked_side(own(r.height, &Image::height), "height", multiple);
  out.latent_width = out.width / c.downscale();
  out.latent_height = out.height / c.downscale();
}

SamplingRequest sampling_request(const ResolvedRequest& out, const Components& c) {
  const GenerateRequest& r = out.request;
  SamplingRequest s;
  if (r.sampler == "auto" && c.native_sampling)
    s = *c.native_sampling;
  else if (r.sampler != "auto")
    s.sampler = r.sampler;
  if (r.schedule != "auto" && r.schedule != "automatic") {
    s.schedule = r.schedule;
    s.schedule_is_set = false;
  } else if (r.sampler != "auto") {
    s.schedule = "automatic";
  }
  s.schedule_args.sdxl = c.kind == ModelKind::kSdxl || c.kind == ModelKind::kSdxlRefiner;
  s.steps = r.steps;
  s.sigmas = r.sigmas;
  s.strength = out.strength;
  if (r.eta) s.options.eta = r.eta;
  return s;
}

std::string number_text(double value) { return fmt::format("{}", value); }

}  // namespace

ResolvedRequest resolve_request(const GenerateRequest& request, const Components& components,
                                const NoiseSchedule& schedule) {
  check_numbers(request);
  check_pictures(request, components);
  ResolvedRequest out;
  out.request = request;
  GenerateRequest& r = out.request;
  if (r.seed < 0) r.seed = random_seed();
  if (r.variation_strength > 0 && r.variation_seed < 0) r.variation_seed = random_seed();
  resolve_size(out, components);
  out.noise = parse_noise_kind(r.rng);
  const auto values = static_cast<size_t>(r.batch * 4 * out.latent_width * out.latent_height);
  require<UsageError>(r.initial_noise.empty() || r.initial_noise.size() == values, "initial noise: expected ",
                      values, " values, got ", r.initial_noise.size());
  // Instruct-pix2pix reads the picture through its extra channels and starts from noise.
  out.strength = r.init_image && !components.is_instruct() ? r.strength : 1.0;
  out.sampling = plan_sampling(schedule, sampling_request(out, components));
  out.conditions = components.is_instruct() ? 3 : r.cfg_scale == 1.0 ? 1 : 2;
  return out;
}

std::string describe_picture(const ResolvedRequest& resolved, const Components& components, int index) {
  const GenerateRequest& r = resolved.request;
  const bool varied = r.variation_strength > 0;
  Infotext info{r.prompt, r.negative_prompt, {}};
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
  if (varied) {
    add("Variation seed", std::to_string(r.variation_seed + index));
    add("Variation seed strength", number_text(r.variation_strength));
  }
  if (r.init_image && !components.is_instruct()) add("Denoising strength", number_text(r.strength));
  if (components.is_instruct()) add("Image CFG scale", number_text(r.image_cfg_scale));
  if (r.mask) add("Mask blur", std::to_string(r.mask_blur));
  if (r.clip_skip > 1) add("Clip skip", std::to_string(r.clip_skip));
  if (r.eta) add("Eta", number_text(*r.eta));
  if (r.guidance_rescale > 0) add("CFG Rescale phi", number_text(r.guidance_rescale));
  if (resolved.noise == NoiseKind::kTorchCpu) add("RNG", "CPU");
  if (r.emphasis != "original") add("Emphasis", r.emphasis);
  if (r.plain_prompt) add("Plain prompt", "True");
  add("Device", components.info.device);
  add("Compute type", components.info.dtype);
  add("Version", concat("rocm-sd ", version()));
  return format_infotext(info);
}

}  // namespace rocm_sd
