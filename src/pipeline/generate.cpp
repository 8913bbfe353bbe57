// The stages of one image, in order: text, init image, sampling, decoding.
#include <cmath>

#include "base/error.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/savings.hpp"
#include "pipeline/soft_inpaint.hpp"
#include "pipeline/state.hpp"

namespace rocm_sd {
namespace {

// latents [h,w,4] of the sampler's last level -> [4,h,w] as x0 + sigma * noise.
std::vector<float> exchanged_latents(const ResolvedRequest& r, const std::vector<float>& latents) {
  const double sigma = r.sampling.schedule.levels.back().sigma;
  const bool preserving = r.sampling.sampler->space == LatentSpace::kVariancePreserving;
  const auto scale = static_cast<float>(preserving ? std::sqrt(sigma * sigma + 1) : 1.0);
  std::vector<float> out(latents.size());
  const size_t pixels = latents.size() / 4;
  for (size_t i = 0; i < pixels; ++i)
    for (size_t c = 0; c < 4; ++c) out[c * pixels + i] = latents[4 * i + c] * scale;
  return out;
}

// How much of each pixel of image i counts, whose latents are `drawn`.
std::vector<float> overlay_mask(Device& device, const ResolvedRequest& r, const InitImage& init,
                                const Tensor& drawn, int i) {
  const std::optional<SoftSettings> soft = soft_settings(r.request.mask_blend);
  if (!soft) return init.mask;
  return soft_overlay(*soft, to_floats(device, init.latents.narrow(0, i, 1)), to_floats(device, drawn),
                      init.latent_mask, static_cast<int>(r.latent_width), static_cast<int>(r.latent_height),
                      static_cast<int>(r.width), static_cast<int>(r.height));
}

}  // namespace

PreparedRequest Pipeline::State::prepare(const GenerateRequest& request, SharedUnet* shared, Loras loras) {
  PreparedRequest r{resolve_request(request, components, schedule), {}};
  r.shared = shared;
  r.rows = tokenise(r, components, embeddings);
  r.strengths = use_loras(r, loras);
  use_controls(r);
  use_image_models(r);
  return r;
}

MemoryPlan Pipeline::State::plan(const PreparedRequest& r) {
  return with_savings([&] { return plan_within_budget(r); });
}

GenerateResult Pipeline::State::generate(const PreparedRequest& r, const Callbacks& callbacks) {
  return with_savings([&] { return draw(r, callbacks); });
}

RunWatch Pipeline::State::watch(const Callbacks& callbacks) const {
  return {profiler.get(), callbacks.cancelled ? &callbacks.cancelled : nullptr};
}

TextStates Pipeline::State::encode_text(const PreparedRequest& r, const RunWatch& watch) {
  // Embeddings are files that may have changed; LoRAs change the encoders.
  if (!residency.offload() || !r.loras.empty() || !r.rows.embeddings.empty()) return run_text(r, watch);
  const auto key = [&] {
    return TextKey{.rows = r.rows.rows,
                   .prompt_chunks = r.rows.prompt_chunks,
                   .chunks = r.rows.chunks,
                   .negatives = r.rows.negatives,
                   .zero_negative = r.rows.zero_negative,
                   .clip_skip = r.request.clip_skip,
                   .emphasis = r.request.emphasis,
                   .dtype = components.dtype_of(Part::kText)};
  };
  Device& device = *components.device;
  if (kept_text_ && kept_text_->key == key())
    return {moved_to(device, host_device(), kept_text_->states),
            moved_to(device, host_device(), kept_text_->pooled)};
  const TextStates states = run_text(r, watch);
  kept_text_ = {.key = key(),  // the type may be a wider one now
                .states = moved_to(host_device(), device, states.states),
                .pooled = moved_to(host_device(), device, states.pooled)};
  return states;
}

TextStates Pipeline::State::run_text(const PreparedRequest& r, const RunWatch& watch) {
  const TextStates states = run_with_retry(Part::kText, r, [&] { return text->run(r, watch); });
  Device& there = components.place[Part::kText];
  return {moved_to(*components.device, there, states.states),
          moved_to(*components.device, there, states.pooled)};
}

// latents [1,h,w,4] -> the image.
Image Pipeline::State::decode(const PreparedRequest& r, const Tensor& latents, const RunWatch& watch) {
  return run_with_retry(Part::kVae, r, [&] { return vae->decode(at_vae(latents), watch); });
}

Tensor Pipeline::State::at_vae(const Tensor& latents) const {
  return moved_to(components.place[Part::kVae], *components.device, latents);
}

GenerateResult Pipeline::State::draw(const PreparedRequest& r, const Callbacks& callbacks) {
  const RunWatch who = watch(callbacks);
  GenerateResult result;
  Clock::time_point begin = Clock::now();
  const auto report = [&](const char* stage, int step, int total) {
    note_memory();
    const bool go_on = !callbacks.progress || callbacks.progress({stage, step, total, seconds_since(begin)});
    require<CancelledError>(go_on, "cancelled");
  };
  const auto end_stage = [&](const char* stage) {
    result.times.push_back({stage, seconds_since(begin)});
    begin = Clock::now();
  };

  result.warnings = r.warnings;
  result.warnings.insert(result.warnings.end(), r.rows.warnings.begin(), r.rows.warnings.end());
  device_peak_ = 0;
  for (Device* device : components.place.devices())
    if (MemoryBudget* counts = memory_budget(*device)) counts->reset_peak();
  if (!draws_alone()) begin_together();
  if (!has_company(r)) {
    result.plan = plan_within_budget(r);
    if (!draws_alone() && agree_about_savings()) result.plan = plan_within_budget(r);
    for (size_t i = 0; i < result.plan.devices.size() && !result.plan.offload; ++i)
      arenas[components.place.parts_on(*components.place.devices()[i]).front()].reserve(
          result.plan.devices[i].arena);
    if (callbacks.planned) callbacks.planned(result.plan);
  }
  end_stage("plan");
  // The processor draws the noise while the device encodes the text.
  std::future<FirstNoise> noise =
      std::async(std::launch::async, draw_first_noise, seeded_noise(r), noise_draws(r));
  const TextStates states = encode_text(r, who);
  report("text", 1, 1);
  end_stage("text");

  encode_images(r, who);
  if (!r.ip_adapters.empty()) {
    report("image", 1, 1);
    end_stage("image");
  }
  const InitImage init = encode_init(r, who);
  if (!init.pixels.empty()) {
    report("encode", 1, 1);
    end_stage("encode");
  }
  preview_seconds_ = 0;
  const Tensor latents = sample(r, states, init, std::move(noise), callbacks);  // [batch,h,w,4]
  end_stage("sample");
  if (!has_company(r)) result.savings = describe_savings(r, unet->calls());
  if (preview_seconds_ > 0) {  // is part of the sampling's
    result.times.back().seconds -= preview_seconds_;
    result.times.push_back({"preview", preview_seconds_});
  }

  const bool decodes = draws_alone() || ranks_->rank() == 0 || vae->shape().rows;
  const std::string hashes = embedding_hashes(r.rows.embeddings);
  for (const ActiveAdapter& lora : r.loras) result.files.push_back({"lora", lora.file->path().string()});
  for (const UsedEmbedding& embedding : r.rows.embeddings)
    result.files.push_back({"embedding", embedding.file->path().string()});
  for (int i = 0; decodes && i < r.request.batch; ++i) {
    const Tensor own = latents.narrow(0, i, 1);
    Image image = r.decodes ? decode(r, own, who) : Image{};
    if (r.decodes && !init.mask.empty() && !r.mask_is_ready)
      image = composite(image, init.pixels, overlay_mask(*components.device, r, init, own, i));
    result.pictures.push_back({std::move(image),
                               image_seed(r.request, i),
                               describe_image(r, components, i, hashes, controls_, ip_adapters_),
                               {}});
    if (r.request.keep_latents || r.request.denoising_end || !r.decodes)
      result.pictures.back().latents = exchanged_latents(r, to_floats(*components.device, own));
    if (r.decodes) report("decode", i + 1, r.request.batch);
  }
  if (!draws_alone()) end_together();
  end_stage("decode");
  result.arena_used = arenas.used_peak();
  result.device_peak = device_peak_;
  caches_dropped_ = false;
  return result;
}

}  // namespace rocm_sd
