#include "scaling/request_key.hpp"

#include "base/error.hpp"
#include "base/format.hpp"

namespace rocm_sd {

std::string TextHash::digits() const { return fmt::format("{:016x}", hash_); }

uint64_t request_key(const GenerateRequest& r) {
  TextHash key;
  const auto add = [&](const auto&... values) { (key.add(concat(values)), ...); };
  add(r.prompt, r.prompts.size(), r.negative_prompt.value_or("\x01"), r.prompt_2.value_or("\x01"),
      r.negative_prompt_2.value_or("\x01"));
  for (const std::string& prompt : r.prompts) add(prompt);
  add(r.width, r.height, r.steps, r.batch, r.cfg_scale, r.sampler, r.schedule, r.sigmas.size());
  add(r.eta.value_or(-1), r.guidance_rescale, r.guidance_start, r.guidance_end, r.negative_min_sigma,
      r.pag_scale, r.pag_layers, r.sag_scale, r.mimic_scale, r.clip_skip, r.rng, r.variation_strength);
  add(r.lora_mode, r.loras.size(), r.controls.size(), r.ip_adapters.size(), r.regions.size(),
      r.embeddings.size());
  for (const LoraUse& lora : r.loras) add(lora.file, lora.weight, lora.te_weight, lora.blocks);
  for (const ControlUse& control : r.controls) add(control.model, control.strength.value_or(1));
  for (const IpAdapterUse& use : r.ip_adapters) add(use.model, use.weight.value_or(1));
  add(r.init_image.has_value(), r.mask.has_value(), r.strength, r.denoising_start.value_or(-1),
      r.denoising_end.value_or(-1), r.tile_size, r.tile_overlap, r.tile_batch, r.init_latents.size(),
      r.initial_noise.size());
  return key.value();
}

}  // namespace rocm_sd
