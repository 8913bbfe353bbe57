// The infotext of an image: what it was drawn with, in A1111's form.
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "pipeline/hires.hpp"
#include "pipeline/infotext.hpp"
#include "pipeline/ip_request.hpp"
#include "pipeline/request.hpp"
#include "pipeline/soft_inpaint.hpp"

namespace rocm_sd {
namespace {

// "host: Xeon, 8 threads, AVX2" -> "host: Xeon, AVX2": the picture does not depend on the threads, so neither
// does its file.
std::string without_threads(std::string device) {
  const size_t end = device.find(" threads, ");
  const size_t begin = end == std::string::npos ? end : device.rfind(", ", end);
  return begin == std::string::npos ? device : device.erase(begin, end - begin + 8);
}

std::string number_text(double value) { return fmt::format("{}", value); }

// As --region takes it, but for a mask's name.
std::string describe_region(const RegionUse& region) {
  if (region.mask) return concat("mask: ", region.prompt);
  std::string place;
  for (const double v : region.box) place += concat(place.empty() ? "" : ",", v);
  return place.empty() ? region.prompt : concat(place, ": ", region.prompt);
}

// With A1111's names.
template <class Add>
void describe_hires(const GenerateRequest& r, const Add& add) {
  const HiresFix& h = r.hires;
  if (!h.active()) return;
  if (!redraws_image(r)) add("Denoising strength", number_text(h.strength));
  if (h.prompt) add("Hires prompt", *h.prompt);
  if (h.negative_prompt) add("Hires negative prompt", *h.negative_prompt);
  if (h.cfg_scale) add("Hires CFG Scale", number_text(*h.cfg_scale));
  if (!h.sampler.empty()) add("Hires sampler", h.sampler);
  if (!h.schedule.empty()) add("Hires schedule type", h.schedule);
  if (h.width > 0 || h.height > 0)
    add("Hires resize", concat(h.width, "x", h.height));
  else
    add("Hires upscale", number_text(h.scale));
  if (h.steps > 0) add("Hires steps", std::to_string(h.steps));
  const bool named = latent_resize_named(h.upscaler) || filter_named(h.upscaler);
  add("Hires upscaler", named ? h.upscaler : std::filesystem::path(h.upscaler).stem().string());
  if (h.tile_size > 0) add("Hires tile size", std::to_string(h.tile_size));
  if (h.tile_size > 0 && h.tile_overlap >= 0) add("Hires tile overlap", std::to_string(h.tile_overlap));
}

template <class Add>
void describe_inpainting(const GenerateRequest& r, MaskedContent content, const Add& add) {
  if (r.mask && r.mask_invert) add("Mask mode", "Inpaint not masked");
  if (content == MaskedContent::kFill) add("Masked content", "fill");
  if (content == MaskedContent::kNoise) add("Masked content", "latent noise");
  if (content == MaskedContent::kNothing) add("Masked content", "latent nothing");
  if (r.only_masked) add("Inpaint area", "Only masked");
  if (r.only_masked) add("Masked area padding", std::to_string(r.only_masked_padding));
  const Outpaint& o = r.outpaint;
  if (o.active())
    add("Outpaint", concat(o.left, " left ", o.right, " right ", o.up, " up ", o.down, " down"));
}

}  // namespace

std::string describe_image(const ResolvedRequest& resolved, const Components& components, int index,
                           const std::string& embedding_hashes,
                           const std::vector<std::shared_ptr<LoadedControl>>& controls,
                           const std::vector<std::shared_ptr<LoadedImageModel>>& adapters) {
  const GenerateRequest& r = resolved.request;
  const bool varied = r.variation_strength > 0;
  Infotext info{r.prompts.empty() ? r.prompt : r.prompts.at(static_cast<size_t>(index)),
                image_negative(r, static_cast<size_t>(index)),
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
  add("Seed", std::to_string(image_seed(r, index)));
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
  for (const ActiveAdapter& lora : resolved.loras)
    hashes += concat(hashes.empty() ? "" : ", ", lora.name, ": ", lora.file->hash().substr(0, 12));
  if (!hashes.empty()) add("Lora hashes", hashes);
  if (r.lora_mode == "runtime" && !resolved.loras.empty()) add("Lora mode", "runtime");
  if (!embedding_hashes.empty()) add("TI hashes", embedding_hashes);
  for (size_t i = 0; i < controls.size(); ++i)
    add(concat("ControlNet ", i).c_str(), describe_control(resolved.controls[i], *controls[i]));
  for (size_t i = 0; i < adapters.size(); ++i)
    add(concat("IP-Adapter ", i).c_str(), describe_ip_adapter(resolved.ip_adapters[i], *adapters[i]));
  if (varied) {
    add("Variation seed", std::to_string(r.variation_seed + index));
    add("Variation seed strength", number_text(r.variation_strength));
  }
  if (r.seed_resize_width > 0)
    add("Seed resize from", concat(r.seed_resize_width, "x", r.seed_resize_height));
  describe_hires(r, add);
  const bool from_picture = (r.init_image || !r.init_latents.empty()) && !components.is_instruct();
  if (from_picture && !r.denoising_start) add("Denoising strength", number_text(r.strength));
  if (r.denoising_start) add("Denoising start", number_text(*r.denoising_start));
  if (r.denoising_end) add("Denoising end", number_text(*r.denoising_end));
  if (from_picture && resolved.samples_posterior) add("VAE sample", "posterior");
  if (components.is_instruct()) add("Image CFG scale", number_text(r.image_cfg_scale));
  if (from_picture && r.exact_steps) add("Exact steps", "True");
  if (r.mask) add("Mask blur", std::to_string(r.mask_blur));
  describe_inpainting(r, resolved.masked_content, add);
  if (const auto soft = soft_settings(r.mask_blend); r.mask && soft) {  // with the extension's names
    add("Soft inpainting enabled", "True");
    add("Soft inpainting schedule bias", number_text(soft->power));
    add("Soft inpainting preservation strength", number_text(soft->scale));
    add("Soft inpainting transition contrast boost", number_text(soft->detail));
    add("Soft inpainting mask influence", number_text(soft->influence));
    add("Soft inpainting difference threshold", number_text(soft->threshold));
    add("Soft inpainting difference contrast", number_text(soft->contrast));
  }
  if (r.mask && resolved.blends_latents) add("Mask blend", "latents");
  if (r.mask && r.mask_downscale != "auto") add("Mask downscale", r.mask_downscale);
  if (r.clip_skip > 1) add("Clip skip", std::to_string(r.clip_skip));
  if (r.eta) add("Eta", number_text(*r.eta));
  if (r.guidance_rescale > 0) add("CFG Rescale phi", number_text(r.guidance_rescale));
  if (r.guidance_start > 0) add("Guidance start", number_text(r.guidance_start));
  if (r.guidance_end < 1) add("Guidance end", number_text(r.guidance_end));
  const Savings& s = r.savings;
  if (s.deep_cache > 1)
    add("DeepCache", concat(s.deep_cache, s.deep_cache_branch ? concat(":", s.deep_cache_branch) : ""));
  if (s.t_gate > 0) add("T-GATE", std::to_string(s.t_gate));
  if (s.sada) add("SADA", "True");
  if (s.token_merge > 0) add("Token merging ratio", number_text(s.token_merge));
  if (s.token_merge > 0 && s.token_merge_downsample > 1)
    add("Token merging maximum downsampling", std::to_string(s.token_merge_downsample));
  if (r.tiling_x || r.tiling_y) add("Tiling", r.tiling_x && r.tiling_y ? "True" : r.tiling_x ? "x" : "y");
  if (r.negative_min_sigma > 0) add("NGMS", number_text(r.negative_min_sigma));
  if (r.negative_min_sigma > 0 && r.negative_min_sigma_all) add("NGMS all steps", "True");
  if (r.dynamic_threshold > 0)
    add("Dynamic threshold",
        concat(number_text(r.dynamic_threshold), " of ", number_text(r.dynamic_threshold_max)));
  if (r.pag_scale > 0) add("PAG scale", number_text(r.pag_scale));
  if (r.pag_scale > 0 && r.pag_layers != "mid") add("PAG layers", r.pag_layers);
  if (!r.freeu.empty())
    add("FreeU", concat("b1 ", r.freeu[0], ", b2 ", r.freeu[1], ", s1 ", r.freeu[2], ", s2 ", r.freeu[3]));
  if (!r.freeu_v2.empty())
    add("FreeU v2",
        concat("b1 ", r.freeu_v2[0], ", b2 ", r.freeu_v2[1], ", s1 ", r.freeu_v2[2], ", s2 ", r.freeu_v2[3]));
  if (r.sag_scale > 0) add("SAG scale", number_text(r.sag_scale));
  for (size_t i = 0; i < r.regions.size(); ++i)
    add(concat("Region ", i).c_str(), describe_region(r.regions[i]));
  if (!r.region_split.empty()) add("Region split", r.region_split);
  if (r.region_base > 0) add("Region base", number_text(r.region_base));
  if (r.mimic_scale > 0) {
    add("Mimic scale", number_text(r.mimic_scale));
    add("Threshold percentile", number_text(100 * r.mimic_percentile));
  }
  if (resolved.noise == NoiseKind::kTorchCpu) add("RNG", "CPU");
  if (r.emphasis != "original") add("Emphasis", r.emphasis);
  if (r.plain_prompt) add("Plain prompt", "True");
  const bool has_negative = r.negative_prompt || !r.negative_prompts.empty();
  if (components.zero_absent_negative && has_negative && info.negative_prompt.empty())
    add("Empty negative prompt", "encoded");
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
