// The stages of one picture, in order: text, init image, sampling, decoding.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/step/blend.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/state.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {
namespace {

// [N,C,H,W] as other engines give noise -> [N,H,W,C].
std::vector<float> to_nhwc(const std::vector<float>& nchw, const Shape& nhwc) {
  std::vector<float> out(nchw.size());
  const int64_t h = nhwc[1], w = nhwc[2], c = nhwc[3];
  for (int64_t n = 0; n < nhwc[0]; ++n)
    for (int64_t k = 0; k < c; ++k)
      for (int64_t p = 0; p < h * w; ++p)
        out[static_cast<size_t>((n * h * w + p) * c + k)] =
            nchw[static_cast<size_t>((n * c + k) * h * w + p)];
  return out;
}

// SDXL's size conditions for each condition of the batch (Podell et al., "SDXL", 2023, section 2.2).
std::vector<std::vector<float>> size_conditions(const ResolvedRequest& r, bool refiner) {
  const GenerateRequest& q = r.request;
  const auto whole = [](int64_t v) { return static_cast<float>(v); };
  const float original_height = whole(q.original_height ? q.original_height : r.height);
  const float original_width = whole(q.original_width ? q.original_width : r.width);
  std::vector<std::vector<float>> out;
  for (int c = 0; c < r.conditions; ++c) {
    std::vector<float> ids = {original_height, original_width, whole(q.crop_top), whole(q.crop_left)};
    if (refiner)
      ids.push_back(
          static_cast<float>(c + 1 < r.conditions ? q.negative_aesthetic_score : q.aesthetic_score));
    else
      ids.insert(ids.end(), {whole(r.height), whole(r.width)});
    out.push_back(std::move(ids));
  }
  return out;
}

int64_t count_nonfinite(const std::vector<float>& values) {
  return std::count_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
}

// Keeps the host at most one step ahead of a GPU, so that progress says what is done and a cancelled run ends
// soon. It waits for the step before the one just asked for: the GPU is never idle for it.
class Pace {
 public:
  explicit Pace(Device& device) {
    if (device.kind() == DeviceKind::kHost) return;
    gpu_ = static_cast<GpuDevice*>(&device);
    begin_ = mark();
  }
  void step() {
    if (!gpu_) return;
    auto now = mark();
    if (last_) last_->milliseconds_since(*begin_);
    last_ = std::move(now);
  }

 private:
  std::unique_ptr<GpuEvent> mark() {
    auto event = gpu_->make_event();
    event->record();
    return event;
  }
  GpuDevice* gpu_ = nullptr;
  std::unique_ptr<GpuEvent> begin_, last_;
};

// Thrown within sample() when a step's result is not finite.
struct NotFinite {
  int64_t count = 0, of = 0;
};

}  // namespace

TextStates Pipeline::State::encode_text(const TokenRows& rows, const ResolvedRequest& r,
                                        const CancelCheck* cancel) {
  for (;;) {
    ready(Part::kText);
    TextStates states = text.encode(rows, r.request, profiler.get(), cancel);
    const int64_t bad = count_nonfinite(states.states) + count_nonfinite(states.pooled);
    if (bad == 0) return states;
    require<GenerationError>(widen(Part::kText, "the text encoder"), "text encoder: ", bad,
                             " values of the text's states are not finite in ",
                             components.dtype_of(Part::kText), "; are the weights damaged?");
  }
}

// pixels [H,W,3] in -1..1 -> latents [h,w,4] as the sampler wants them.
std::vector<float> Pipeline::State::encode_picture(const ResolvedRequest& r, const std::vector<float>& pixels,
                                                   const CancelCheck* cancel) {
  for (;;) {
    prepare_stages(r, rows);
    components.encoder();
    ready(Part::kVae);
    std::vector<float> latents = vae->encode(pixels, profiler.get(), cancel);
    const int64_t bad = count_nonfinite(latents);
    if (bad == 0) return latents;
    require<GenerationError>(widen(Part::kVae, "the VAE's encoder"), "vae encoder: ", bad, " of ",
                             latents.size(), " values are not finite in ", components.dtype_of(Part::kVae),
                             "; are the weights damaged?");
  }
}

InitImage Pipeline::State::encode_init(const ResolvedRequest& r, const CancelCheck* cancel) {
  InitImage init;
  const int width = static_cast<int>(r.width), height = static_cast<int>(r.height);
  if (r.request.init_image) {
    init.pixels = image_to_floats(*r.request.init_image, width, height);
    init.latents = encode_picture(r, init.pixels, cancel);
  }
  if (r.request.mask) {
    init.mask = mask_to_floats(*r.request.mask, width, height, r.request.mask_blur);
    init.latent_mask = latent_mask(init.mask, width, height, static_cast<int>(components.downscale()));
  }
  if (components.is_instruct() || components.is_inpainting()) init.extra = extra_channels(r, init, cancel);
  return init;
}

// The UNet's further input channels, for each condition: [h*w*extra].
std::vector<std::vector<float>> Pipeline::State::extra_channels(const ResolvedRequest& r,
                                                                const InitImage& init,
                                                                const CancelCheck* cancel) {
  const auto pixels = static_cast<size_t>(r.latent_height * r.latent_width);
  if (components.is_instruct()) {
    // Unconditional images see no picture; the others see its latents unscaled (Brooks et al. 2023,
    // section 3.2.1).
    const VaeConfig& config = components.vae->config();
    std::vector<float> raw = init.latents;
    for (float& v : raw) v = static_cast<float>(v / config.scaling_factor + config.shift_factor);
    return {std::vector<float>(pixels * 4, 0.0f), raw, raw};
  }
  // Inpainting: the mask, then the latents of the picture with the masked part grey. Without a picture all is
  // masked.
  std::vector<float> masked(static_cast<size_t>(r.width * r.height * 3), 0.0f);
  for (size_t i = 0; i < init.mask.size(); ++i)
    if (init.mask[i] < 0.5f) std::copy_n(&init.pixels[3 * i], 3, &masked[3 * i]);
  const std::vector<float> latents = encode_picture(r, masked, cancel);
  std::vector<float> channels;
  for (size_t i = 0; i < pixels; ++i) {
    channels.push_back(init.latent_mask.empty() ? 1.0f : init.latent_mask[i]);
    channels.insert(channels.end(), &latents[4 * i], &latents[4 * i] + 4);
  }
  return std::vector<std::vector<float>>(static_cast<size_t>(r.conditions), channels);
}

// The UNet on the device, with everything that stays the same from step to step.
void Pipeline::State::prepare_unet(const ResolvedRequest& r, const TextStates& states, const InitImage& init,
                                   const CancelCheck* cancel) {
  prepare_stages(r, rows);
  ready(Part::kUnet);
  unet->set_text(states, size_conditions(r, components.kind == ModelKind::kSdxlRefiner), profiler.get(),
                 cancel);
  if (!init.extra.empty() && r.request.tile_size == 0) unet->set_extra_channels(init.extra);
  std::vector<double> timesteps;
  for (const NoiseLevel& level : r.sampling.schedule.levels)
    if (level.sigma > 0) timesteps.push_back(level.timestep);
  unet->set_schedule(timesteps, profiler.get(), cancel);
}

SamplerHooks Pipeline::State::sampler_hooks(const ResolvedRequest& r, const InitImage& init,
                                            const Callbacks& callbacks, Clock::time_point begin) {
  SamplerHooks hooks;
  hooks.on_step = [this, &callbacks, begin,
                   pace = std::make_shared<Pace>(*components.device)](const StepReport& report) {
    note_memory();
    pace->step();
    // What overflows does so at once, as a rule: the other steps would be wasted.
    if (report.step == 1) {
      const int64_t bad = count_nonfinite(to_floats(*components.device, report.denoised));
      if (bad > 0) throw NotFinite{bad, report.denoised.numel()};
    }
    return !callbacks.progress ||
           callbacks.progress({"sample", report.step, report.total, seconds_since(begin)});
  };
  // An inpainting model sees the picture and the mask itself.
  if (init.latent_mask.empty() || components.is_inpainting()) return hooks;
  // The unmasked region is known: its clean latents replace the prediction at every step.
  std::vector<float> keep, known;
  for (int64_t n = 0; n < r.request.batch; ++n)
    for (size_t i = 0; i < init.latent_mask.size(); ++i)
      for (size_t c = 0; c < 4; ++c) {
        keep.push_back(init.latent_mask[i]);
        known.push_back(init.latents[4 * i + c]);
      }
  const Shape shape{r.request.batch, r.latent_height, r.latent_width, 4};
  const Tensor mask = tensor_from(*components.device, shape, keep.data());
  const Tensor clean = tensor_from(*components.device, shape, known.data());
  hooks.after_denoise = [mask, clean](Exec& ex, const Tensor& denoised, const NoiseLevel&) {
    return blend(ex, denoised, clean, mask);
  };
  return hooks;
}

std::vector<float> Pipeline::State::sample(const ResolvedRequest& r, const TextStates& states,
                                           const InitImage& init, const Callbacks& callbacks) {
  const CancelCheck* cancel = callbacks.cancelled ? &callbacks.cancelled : nullptr;
  for (;;) {
    prepare_unet(r, states, init, cancel);
    NotFinite bad;
    try {
      std::vector<float> latents = run_steps(r, init, callbacks);
      bad = {count_nonfinite(latents), static_cast<int64_t>(latents.size())};
      if (bad.count == 0) return latents;
    } catch (const NotFinite& found) {
      bad = found;
    }
    const DType dtype = components.dtype_of(Part::kUnet);
    require<GenerationError>(widen(Part::kUnet, "the UNet"), "sampling: ", bad.count, " of ", bad.of,
                             " latent values are not finite in ", dtype, "; are the weights damaged?");
  }
}

std::vector<float> Pipeline::State::run_steps(const ResolvedRequest& r, const InitImage& init,
                                              const Callbacks& callbacks) {
  const GenerateRequest& q = r.request;
  const CancelCheck* cancel = callbacks.cancelled ? &callbacks.cancelled : nullptr;
  const auto begin = Clock::now();
  Exec ex(scratch);
  ex.profiler = profiler.get();
  ex.cancel = cancel;

  const bool varied = q.variation_strength > 0;
  const ImageSeed first{static_cast<uint64_t>(q.seed), static_cast<uint64_t>(varied ? q.variation_seed : 0),
                        q.variation_strength};
  BatchNoise noise(r.noise, batch_seeds(first, q.batch), 4, r.latent_height, r.latent_width);
  std::vector<float> start = noise.next();
  if (!q.initial_noise.empty()) start = to_nhwc(q.initial_noise, noise.shape());
  const Tensor initial = tensor_from(*components.device, noise.shape(), start.data());

  std::optional<TiledUnet> tiled;
  if (q.tile_size > 0)
    tiled.emplace(*components.device, *unet, r.tiles, q.batch, r.latent_height, r.latent_width, init.extra);
  const auto predict = [&](Exec& e, const Tensor& x, double t) {
    return tiled ? (*tiled)(e, x, t, profiler.get(), cancel) : unet->step(e, x, t, profiler.get(), cancel);
  };
  const Denoiser denoiser(predict, {.prediction = components.prediction,
                                    .sigma_data = components.sigma_data,
                                    .cfg_scale = q.cfg_scale,
                                    .image_cfg_scale = q.image_cfg_scale,
                                    .instruct = components.is_instruct(),
                                    .guidance_rescale = q.guidance_rescale,
                                    .input_dtype = components.unet->input_dtype()});
  Tensor x;
  // At strength 1 image to image still adds the noise to the picture's latents, as every front end does; only
  // inpainting starts from noise alone.
  const bool repaints = !init.mask.empty() || components.is_inpainting();
  if (init.latents.empty() || components.is_instruct() || (r.strength >= 1.0 && repaints)) {
    x = start_from_noise(ex, r.sampling, initial);
  } else {
    std::vector<float> repeated;
    for (int i = 0; i < q.batch; ++i)
      repeated.insert(repeated.end(), init.latents.begin(), init.latents.end());
    x = start_from_latents(ex, r.sampling, tensor_from(*components.device, noise.shape(), repeated.data()),
                           initial);
  }
  const SamplerHooks hooks = sampler_hooks(r, init, callbacks, begin);
  return to_floats(*components.device, run_sampler(ex, schedule, r.sampling, denoiser, &noise, x, hooks));
}

// latents [h,w,4] -> the picture.
Image Pipeline::State::decode(const ResolvedRequest& r, const std::vector<float>& latents,
                              const CancelCheck* cancel) {
  for (;;) {
    prepare_stages(r, rows);
    ready(Part::kVae);
    VaeStage::Decoded decoded = vae->decode(latents, profiler.get(), cancel);
    if (decoded.nonfinite == 0) return std::move(decoded.image);
    require<GenerationError>(widen(Part::kVae, "the VAE's decoder"), "vae decoder: ", decoded.nonfinite,
                             " of ", decoded.image.rgb.size(), " values are not finite in ",
                             components.dtype_of(Part::kVae), "; are the weights damaged?");
  }
}

GenerateResult Pipeline::State::generate(const ResolvedRequest& r, const Callbacks& callbacks) {
  const CancelCheck* cancel = callbacks.cancelled ? &callbacks.cancelled : nullptr;
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

  rows = text.tokenise(r.request, r.uses_negative());
  result.warnings = rows.warnings;
  device_peak = 0;
  const MemoryPlan planned = plan(r, rows);
  if (!planned.offload) arena.reserve(planned.arena);
  end_stage("plan");
  const TextStates states = encode_text(rows, r, cancel);
  report("text", 1, 1);
  end_stage("text");

  const InitImage init = encode_init(r, cancel);
  if (r.request.init_image) {
    report("encode", 1, 1);
    end_stage("encode");
  }
  const std::vector<float> latents = sample(r, states, init, callbacks);
  end_stage("sample");

  const auto per_image = latents.size() / static_cast<size_t>(r.request.batch);
  for (int i = 0; i < r.request.batch; ++i) {
    const auto* from = latents.data() + static_cast<size_t>(i) * per_image;
    Image image = decode(r, {from, from + per_image}, cancel);
    if (!init.mask.empty()) image = composite(image, init.pixels, init.mask);
    const auto seed = static_cast<uint64_t>(r.request.seed + (r.request.variation_strength > 0 ? 0 : i));
    result.pictures.push_back({std::move(image), seed, describe_picture(r, components, i)});
    report("decode", i + 1, r.request.batch);
  }
  end_stage("decode");
  result.arena_used = arena.used_peak();
  result.device_peak = device_peak;
  caches_dropped = false;
  return result;
}

}  // namespace rocm_sd
