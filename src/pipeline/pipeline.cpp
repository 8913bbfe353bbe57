// Pipeline: prompt -> tokens -> text states -> latents -> pictures.
#include "rocm_sd/pipeline.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.hpp"
#include "kernels/step/blend.hpp"
#include "kernels/step/step.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/request.hpp"
#include "pipeline/text_stage.hpp"
#include "pipeline/unet_stage.hpp"
#include "pipeline/vae_stage.hpp"
#include "schedulers/sampler.hpp"

namespace rocm_sd {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

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

// What an init image means for the latents.
struct InitImage {
  std::vector<float> pixels;       // [H,W,3] in -1..1
  std::vector<float> mask;         // [H,W], empty where the whole picture is repainted
  std::vector<float> latents;      // [h,w,4]
  std::vector<float> latent_mask;  // [h,w]
};

}  // namespace

struct Pipeline::State {
  explicit State(Components loaded)
      : components(std::move(loaded)),
        arena(*components.device),
        scratch(*components.device),
        schedule(components.noise),
        text(components, arena) {}

  Components components;
  Arena arena;    // of the planned forwards, one at a time
  Arena scratch;  // latents between them
  NoiseSchedule schedule;
  TextStage text;
  std::unique_ptr<UnetStage> unet;
  std::unique_ptr<VaeStage> vae;
  std::unique_ptr<Profiler> profiler;

  MemoryPlan plan(const ResolvedRequest& r, const TokenRows& rows);
  void prepare_stages(const ResolvedRequest& r, const TokenRows& rows);
  InitImage encode_init(const ResolvedRequest& r, const CancelCheck* cancel);
  void set_extra_channels(const ResolvedRequest& r, const InitImage& init, const CancelCheck* cancel);
  std::vector<float> sample(const ResolvedRequest& r, const InitImage& init, const Callbacks& callbacks);
  SamplerHooks sampler_hooks(const ResolvedRequest& r, const InitImage& init, const Callbacks& callbacks,
                             Clock::time_point begin);
};

void Pipeline::State::prepare_stages(const ResolvedRequest& r, const TokenRows& rows) {
  const auto tokens = rows.chunks * static_cast<int64_t>(rows.rows[0].front().ids.size());
  const UnetShape shape{r.request.batch, r.conditions, r.latent_height, r.latent_width, tokens};
  if (!unet || !(unet->shape() == shape)) {
    unet.reset();  // give the buffers back before the new ones are made
    unet = std::make_unique<UnetStage>(components, arena, shape);
  }
  if (!vae || vae->height() != r.latent_height || vae->width() != r.latent_width) {
    vae.reset();
    vae = std::make_unique<VaeStage>(components, arena, r.latent_height, r.latent_width);
  }
}

MemoryPlan Pipeline::State::plan(const ResolvedRequest& r, const TokenRows& rows) {
  prepare_stages(r, rows);
  MemoryPlan out;
  out.text = text.plan(rows, r.request.clip_skip);
  out.unet = unet->plan();
  out.vae = vae->plan(r.request.init_image.has_value() || components.is_inpainting());
  out.arena = std::max({out.text, out.unet, out.vae});
  const uint64_t latents =
      16 * static_cast<uint64_t>(r.request.batch * r.latent_height * r.latent_width * 4) * sizeof(float);
  out.buffers = text.buffer_bytes() + unet->buffer_bytes() + vae->buffer_bytes() + latents;
  const uint64_t held = text.buffer_bytes() + unet->buffer_bytes() + vae->buffer_bytes() + arena.capacity();
  out.weights = components.device->allocated() - held;
  return out;
}

InitImage Pipeline::State::encode_init(const ResolvedRequest& r, const CancelCheck* cancel) {
  InitImage init;
  if (!r.request.init_image) return init;
  const int width = static_cast<int>(r.width), height = static_cast<int>(r.height);
  init.pixels = image_to_floats(*r.request.init_image, width, height);
  init.latents = vae->encode(init.pixels, profiler.get(), cancel);
  if (r.request.mask) {
    init.mask = mask_to_floats(*r.request.mask, width, height, r.request.mask_blur);
    init.latent_mask = latent_mask(init.mask, width, height, static_cast<int>(components.downscale()));
  }
  return init;
}

void Pipeline::State::set_extra_channels(const ResolvedRequest& r, const InitImage& init,
                                         const CancelCheck* cancel) {
  const auto pixels = static_cast<size_t>(r.latent_height * r.latent_width);
  if (components.is_instruct()) {
    // Unconditional images see no picture; the others see its latents unscaled (Brooks et al. 2023,
    // section 3.2.1).
    const VaeConfig& config = components.vae->config();
    std::vector<float> raw = init.latents;
    for (float& v : raw) v = static_cast<float>(v / config.scaling_factor + config.shift_factor);
    unet->set_extra_channels({std::vector<float>(pixels * 4, 0.0f), raw, raw});
    return;
  }
  // Inpainting: the mask, then the latents of the picture with the masked part grey. Without a picture all is
  // masked.
  std::vector<float> masked(static_cast<size_t>(r.width * r.height * 3), 0.0f);
  for (size_t i = 0; i < init.mask.size(); ++i)
    if (init.mask[i] < 0.5f) std::copy_n(&init.pixels[3 * i], 3, &masked[3 * i]);
  const std::vector<float> latents = vae->encode(masked, profiler.get(), cancel);
  std::vector<float> channels;
  for (size_t i = 0; i < pixels; ++i) {
    channels.push_back(init.latent_mask.empty() ? 1.0f : init.latent_mask[i]);
    channels.insert(channels.end(), &latents[4 * i], &latents[4 * i] + 4);
  }
  unet->set_extra_channels(std::vector<std::vector<float>>(static_cast<size_t>(r.conditions), channels));
}

SamplerHooks Pipeline::State::sampler_hooks(const ResolvedRequest& r, const InitImage& init,
                                            const Callbacks& callbacks, Clock::time_point begin) {
  SamplerHooks hooks;
  hooks.on_step = [&callbacks, begin](const StepReport& report) {
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

std::vector<float> Pipeline::State::sample(const ResolvedRequest& r, const InitImage& init,
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

  const Denoiser denoiser([this, cancel](Exec& e, const Tensor& x,
                                         double t) { return unet->step(e, x, t, profiler.get(), cancel); },
                          {.prediction = components.prediction,
                           .cfg_scale = q.cfg_scale,
                           .image_cfg_scale = q.image_cfg_scale,
                           .instruct = components.is_instruct(),
                           .guidance_rescale = q.guidance_rescale,
                           .input_dtype = components.dtype});
  Tensor x;
  if (init.latents.empty() || components.is_instruct() || r.strength >= 1.0) {
    x = start_from_noise(ex, r.sampling, initial);
  } else {
    std::vector<float> repeated;
    for (int i = 0; i < q.batch; ++i)
      repeated.insert(repeated.end(), init.latents.begin(), init.latents.end());
    x = start_from_latents(ex, r.sampling, tensor_from(*components.device, noise.shape(), repeated.data()),
                           initial);
  }
  const SamplerHooks hooks = sampler_hooks(r, init, callbacks, begin);
  const Tensor latents = run_sampler(ex, schedule, r.sampling, denoiser, &noise, x, hooks);
  std::vector<float> out = to_floats(*components.device, latents);
  const auto bad = std::count_if(out.begin(), out.end(), [](float v) { return !std::isfinite(v); });
  require<GenerationError>(
      bad == 0, "sampling: ", bad, " of ", out.size(), " latent values are not finite in ",
      components.info.dtype,
      components.dtype == DType::kF32 ? "; are the weights damaged?" : "; try --dtype f32");
  return out;
}

Pipeline::Pipeline(std::unique_ptr<State> state) : state_(std::move(state)) {}
Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

Pipeline Pipeline::load(const LoadOptions& options, const Callbacks& callbacks) {
  return Pipeline(std::make_unique<State>(load_components(options, host_device(), callbacks)));
}

const ModelInfo& Pipeline::info() const { return state_->components.info; }

MemoryPlan Pipeline::plan(const GenerateRequest& request) {
  const ResolvedRequest resolved = resolve_request(request, state_->components, state_->schedule);
  return state_->plan(resolved, state_->text.tokenise(request, resolved.uses_negative()));
}

GenerateResult Pipeline::generate(const GenerateRequest& request, const Callbacks& callbacks) {
  State& s = *state_;
  const CancelCheck* cancel = callbacks.cancelled ? &callbacks.cancelled : nullptr;
  const ResolvedRequest r = resolve_request(request, s.components, s.schedule);
  GenerateResult result;
  Clock::time_point begin = Clock::now();
  const auto report = [&](const char* stage, int step, int total) {
    const bool go_on = !callbacks.progress || callbacks.progress({stage, step, total, seconds_since(begin)});
    require<CancelledError>(go_on, "cancelled");
  };
  const auto end_stage = [&](const char* stage) {
    result.times.push_back({stage, seconds_since(begin)});
    begin = Clock::now();
  };

  const TokenRows rows = s.text.tokenise(request, r.uses_negative());
  result.warnings = rows.warnings;
  s.arena.reserve(s.plan(r, rows).arena);
  end_stage("plan");
  const TextStates states = s.text.encode(rows, r.request, s.profiler.get(), cancel);
  s.unet->set_text(states, size_conditions(r, s.components.kind == ModelKind::kSdxlRefiner), s.profiler.get(),
                   cancel);
  report("text", 1, 1);
  end_stage("text");

  const InitImage init = s.encode_init(r, cancel);
  if (s.components.is_inpainting() || s.components.is_instruct()) s.set_extra_channels(r, init, cancel);
  if (request.init_image) {
    report("encode", 1, 1);
    end_stage("encode");
  }
  const std::vector<float> latents = s.sample(r, init, callbacks);
  end_stage("sample");

  const auto per_image = latents.size() / static_cast<size_t>(r.request.batch);
  for (int i = 0; i < r.request.batch; ++i) {
    const auto* from = latents.data() + static_cast<size_t>(i) * per_image;
    Image image = s.vae->decode({from, from + per_image}, s.profiler.get(), cancel);
    if (!init.mask.empty()) image = composite(image, init.pixels, init.mask);
    const auto seed = static_cast<uint64_t>(r.request.seed + (r.request.variation_strength > 0 ? 0 : i));
    result.pictures.push_back({std::move(image), seed, describe_picture(r, s.components, i)});
    report("decode", i + 1, r.request.batch);
  }
  end_stage("decode");
  result.arena_used = s.arena.used_peak();
  return result;
}

void Pipeline::enable_profiling() {
  if (!state_->profiler) state_->profiler = std::make_unique<Profiler>();
}

std::string Pipeline::profile_table() const { return state_->profiler ? state_->profiler->table() : ""; }

void Pipeline::write_profile_trace(const std::string& path) const {
  require<UsageError>(state_->profiler != nullptr, "profile: enable_profiling was not called");
  state_->profiler->write_chrome_trace(path);
}

std::vector<std::string> sampler_names() {
  std::vector<std::string> out;
  for (const SamplerRow& row : samplers()) out.push_back(concat(row.name, " (", row.label, ")"));
  return out;
}

std::vector<std::string> schedule_names_list() { return schedule_names(); }

}  // namespace rocm_sd
