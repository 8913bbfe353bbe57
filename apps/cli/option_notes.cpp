#include "apps/cli/option_notes.hpp"

#include "base/error.hpp"
#include "schedulers/sampler.hpp"

namespace rocm_sd::cli {
namespace {

// Whether the sampler draws noise by eta, or can: DDIM's and DPM++ SDE's kin.
bool uses_eta(const std::string& sampler) {
  if (sampler == "auto") return true;  // what that is, is known later
  const SamplerRow& row = find_sampler(sampler);
  return row.eta > 0 || row.name.starts_with("ddim");
}

}  // namespace

std::vector<std::string> options_without_effect(const std::set<std::string>& given,
                                                const GenerateRequest& request, const ModelInfo& model) {
  std::vector<std::string> out;
  const auto note = [&](const char* name, bool has_effect, const std::string& why) {
    if (given.contains(name) && !has_effect) out.push_back(concat("--", name, " has no effect: ", why));
  };
  const bool sdxl = model.kind.starts_with("sdxl"), refiner = model.kind.starts_with("sdxl_refiner");
  const bool instruct = model.kind.find("instruct") != model.kind.npos;
  const std::string is = concat("this model is ", model.kind);
  try {
    note("eta", uses_eta(request.sampler), concat("the sampler ", request.sampler, " draws no noise by it"));
  } catch (const UsageError&) {  // an unknown sampler is refused by name, later
  }
  const bool from_picture = request.init_image.has_value() || !request.init_latents.empty();
  note("strength", from_picture && !instruct && !request.denoising_start,
       instruct       ? is
       : from_picture ? "--denoising-start says where to begin"
                      : "there is no --init-image to start from");
  for (const char* name : {"mask-blur", "mask-downscale", "mask-blend"})
    note(name, request.mask || request.outpaint.active(), "there is no --mask");
  note("mask-invert", request.mask.has_value(), "there is no --mask");
  note("only-masked-padding", request.only_masked, "there is no --only-masked");
  note("exact-steps", from_picture, "there is no --init-image to start from");
  for (const char* name :
       {"hires-upscaler", "hires-steps", "hires-denoising-strength", "hires-cfg-scale", "hires-sampler",
        "hires-schedule", "hires-prompt", "hires-negative-prompt", "hires-tile-size", "hires-tile-overlap"})
    note(name, request.hires.active(), "there is no --hires-scale, --hires-width or --hires-height");
  if (request.hires.active())
    note("hires-denoising-strength", !from_picture, "with --init-image it is --strength");
  for (const char* name : {"detail-prompt", "detail-negative-prompt", "detail-strength", "detail-steps",
                           "detail-padding", "detail-blur", "detail-width", "detail-height"})
    note(name, request.detail.active(), "there is no --detail-box and no --detail-mask");
  for (const char* name : {"loopback-strength", "loopback-curve"})
    note(name, request.loopback.loops > 1, "there is no --loopback");
  note("preview-interval", request.preview.mode != "none", "there is no --preview");
  for (const char* name : {"tile-batch", "tile-weights"})
    note(name, request.tile_size > 0, "there is no --tile-size");
  note("image-cfg-scale", instruct, concat(is, ", not instruct-pix2pix"));
  note("variation-seed", request.variation_strength > 0, "--variation-strength is 0");
  note("variation-strength", request.variation_strength > 0, "0 is no variation");
  note("negative-min-sigma-all", request.negative_min_sigma > 0, "--negative-min-sigma is 0");
  note("dynamic-threshold-max", request.dynamic_threshold > 0, "--dynamic-threshold is 0");
  note("mimic-percentile", request.mimic_scale > 0, "--mimic-scale is 0");
  note("emphasis", !request.plain_prompt, "--plain-prompt reads no weights");
  note("schedule", request.sigmas.empty(), "--sigmas names the noise levels");
  for (const char* name : {"aesthetic-score", "negative-aesthetic-score"})
    note(name, refiner, concat(is, ", not the SDXL refiner"));
  for (const char* name :
       {"original-width", "original-height", "crop-left", "crop-top", "negative-original-width",
        "negative-original-height", "negative-crop-left", "negative-crop-top"})
    note(name, sdxl, concat(is, ", not SDXL"));
  for (const char* name :
       {"target-width", "target-height", "negative-target-width", "negative-target-height"})
    note(name, sdxl && !refiner, concat(is, ", not SDXL's base"));
  note("text-encoder-2", sdxl, concat(is, ", which has one text encoder"));
  note("text-encoder", !refiner, concat(is, ", which has the second text encoder alone"));
  return out;
}

}  // namespace rocm_sd::cli
