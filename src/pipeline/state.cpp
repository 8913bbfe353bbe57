// The stages of one picture, in order: text, init image, sampling, decoding.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/step/blend.hpp"
#include "kernels/step/step.hpp"
#include "pipeline/control_picture.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/state.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {
namespace {

// SDXL's size conditions for each condition of the batch (Podell et al., "SDXL", 2023, section 2.2); those of
// the negative prompt by the rules of Diffusers' pipelines.
std::vector<std::vector<float>> size_conditions(const ResolvedRequest& r, bool refiner) {
  const GenerateRequest& q = r.request;
  struct Sizes {
    int64_t original_height, original_width, top, left, target_height, target_width;
  };
  const auto or_else = [](int64_t asked, int64_t own) { return asked ? asked : own; };
  const Sizes positive{
      or_else(q.original_height, r.height), or_else(q.original_width, r.width), q.crop_top, q.crop_left,
      or_else(q.target_height, r.height),   or_else(q.target_width, r.width)};
  const bool own_crop = refiner || q.negative_original_height || q.negative_original_width ||
                        q.negative_target_height || q.negative_target_width;
  const Sizes negative{q.negative_original_height.value_or(positive.original_height),
                       q.negative_original_width.value_or(positive.original_width),
                       q.negative_crop_top.value_or(own_crop ? 0 : positive.top),
                       q.negative_crop_left.value_or(own_crop ? 0 : positive.left),
                       q.negative_target_height.value_or(positive.target_height),
                       q.negative_target_width.value_or(positive.target_width)};
  std::vector<std::vector<float>> out;
  for (int c = 0; c < r.conditions; ++c) {
    const bool is_part = c >= r.first_part();
    const Sizes& s = is_part ? positive : negative;
    std::vector<double> ids = {static_cast<double>(s.original_height), static_cast<double>(s.original_width),
                               static_cast<double>(s.top), static_cast<double>(s.left)};
    if (refiner)
      ids.push_back(is_part ? q.aesthetic_score : q.negative_aesthetic_score);
    else
      ids.insert(ids.end(), {static_cast<double>(s.target_height), static_cast<double>(s.target_width)});
    out.emplace_back(ids.begin(), ids.end());
  }
  return out;
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

// Which calls leave guidance out: steps outside of the interval (Diffusers' rule for its guiders), and calls
// below the minimum sigma (A1111's rule). Empty: none does.
std::function<bool(const NoiseLevel&)> unguided_calls(const ResolvedRequest& r) {
  const GenerateRequest& q = r.request;
  if (q.guidance_start <= 0 && q.guidance_end >= 1 && q.negative_min_sigma <= 0) return {};
  std::vector<double> sigmas;  // that the steps begin with
  for (const NoiseLevel& level : r.sampling.schedule.levels) sigmas.push_back(level.sigma);
  sigmas.pop_back();
  const auto steps = static_cast<double>(sigmas.size());
  const int first = static_cast<int>(q.guidance_start * steps),
            end = static_cast<int>(q.guidance_end * steps);
  return [sigmas, first, end, least = q.negative_min_sigma, all = q.negative_min_sigma_all,
          call = 0](const NoiseLevel& level) mutable {
    constexpr double kSame = 1 + 1e-9;
    const auto step = std::count_if(sigmas.begin(), sigmas.end(),
                                    [&](double sigma) { return sigma > level.sigma * kSame; });
    const bool second = call++ % 2 == 1;
    return step < first || step >= end || (level.sigma < least && (second || all));
  };
}

// Thrown within sample() when a step's result is not finite.
struct NotFinite {
  int64_t count = 0, of = 0;
};

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

void Pipeline::State::use_text(const ResolvedRequest& r, const TextStates& states, size_t call,
                               const CancelCheck* cancel) {
  const std::vector<int64_t>& prompts = rows.prompts_at(call);
  if (prompts == prompts_at_work) return;
  unet->set_text(states, prompts, size_conditions(r, components.kind == ModelKind::kSdxlRefiner),
                 profiler.get(), cancel);
  prompts_at_work = prompts;
}

// The UNet on the device, with everything that stays the same from step to step.
void Pipeline::State::prepare_unet(const ResolvedRequest& r, const TextStates& states, const InitImage& init,
                                   const CancelCheck* cancel) {
  prepare_stages(r, rows);
  ready(Part::kUnet);
  prompts_at_work.clear();
  use_text(r, states, 0, cancel);
  if (!init.extra.empty() && r.request.tile_size == 0) unet->set_extra_channels(init.extra);
  unet->set_guidance(r.request.cfg_scale);
  if (!controls.empty()) unet->set_controls(control_settings(r, planned_controls), profiler.get(), cancel);
  std::vector<double> timesteps;
  for (const NoiseLevel& level : r.sampling.schedule.levels)
    if (level.sigma > 0) timesteps.push_back(level.timestep);
  unet->set_schedule(timesteps, profiler.get(), cancel);
}

SamplerHooks Pipeline::State::sampler_hooks(const Callbacks& callbacks, Clock::time_point begin) {
  SamplerHooks hooks;
  hooks.on_step = [this, &callbacks, begin,
                   pace = std::make_shared<Pace>(*components.device)](const StepReport& report) {
    note_memory();
    unet->set_progress(report.step, report.total);
    pace->step();
    // What overflows does so at once, as a rule: the other steps would be wasted.
    if (report.step == 1) {
      const int64_t bad = count_nonfinite(to_floats(*components.device, report.denoised));
      if (bad > 0) throw NotFinite{bad, report.denoised.numel()};
    }
    return !callbacks.progress ||
           callbacks.progress({"sample", report.step, report.total, seconds_since(begin)});
  };
  return hooks;
}

// The unmasked region is known. mask and clean [N,h,w,4]; start: the latents' noise.
void Pipeline::State::keep_unmasked(SamplerHooks& hooks, const ResolvedRequest& r, const Tensor& mask,
                                    const Tensor& clean, const std::vector<float>& start) {
  if (!r.blends_latents || start.empty()) {
    hooks.after_denoise = [mask, clean](Exec& ex, const Tensor& denoised, const NoiseLevel&) {
      return blend(ex, denoised, clean, mask);
    };
    return;
  }
  const Tensor noise = tensor_from(*components.device, clean.shape(), start.data());
  hooks.before_denoise = [mask, clean, noise, first = true](
                             Exec& ex, const Tensor& x, const NoiseLevel& level, LatentSpace space) mutable {
    if (std::exchange(first, false)) return x;  // what the run starts from stays as it is
    return blend(ex, x, add_noise(ex, clean, noise, level, space), mask);
  };
}

std::vector<float> Pipeline::State::sample(const ResolvedRequest& r, const TextStates& states,
                                           const InitImage& init, const Callbacks& callbacks) {
  const CancelCheck* cancel = callbacks.cancelled ? &callbacks.cancelled : nullptr;
  for (;;) {
    prepare_unet(r, states, init, cancel);
    NotFinite bad;
    try {
      std::vector<float> latents = run_steps(r, states, init, callbacks);
      bad = {count_nonfinite(latents), static_cast<int64_t>(latents.size())};
      if (bad.count == 0) return latents;
    } catch (const NotFinite& found) {
      bad = found;
    }
    const DType dtype = components.dtype_of(Part::kUnet);
    require<GenerationError>(widen(Part::kUnet, "the UNet"), "sampling: ", bad.count, " of ", bad.of,
                             " latent values are not finite in ", dtype, "; are the weights damaged",
                             controls.empty() ? "?" : ", or those of a ControlNet?");
  }
}

// What the sampler starts from, in its space. start: [N,h,w,4] noise, or empty with denoising_start.
Tensor Pipeline::State::first_latents(Exec& ex, const ResolvedRequest& r, const InitImage& init,
                                      const std::vector<float>& start, const Shape& shape) {
  Device& device = *components.device;
  if (r.request.denoising_start) {
    const Tensor given = tensor_from(device, shape, init.latents.data());
    const bool noisy = !r.request.init_latents.empty();
    const double sigma = r.sampling.schedule.levels.front().sigma;
    const bool preserving = r.sampling.sampler->space == LatentSpace::kVariancePreserving;
    const double scale = noisy && preserving ? 1 / std::sqrt(sigma * sigma + 1) : 1;
    return linear_combination(ex, {{scale, given}});
  }
  const Tensor noise = tensor_from(device, shape, start.data());
  // Diffusers' inpainting pipelines take pure noise where everything is to be redrawn.
  const bool repaints_all = r.request.mask && r.strength >= 1.0;
  if (init.latents.empty() || components.is_instruct() || repaints_all)
    return start_from_noise(ex, r.sampling, noise);
  return start_from_latents(ex, r.sampling, tensor_from(device, shape, init.latents.data()), noise);
}

std::vector<float> Pipeline::State::run_steps(const ResolvedRequest& r, const TextStates& states,
                                              const InitImage& init, const Callbacks& callbacks) {
  const GenerateRequest& q = r.request;
  const CancelCheck* cancel = callbacks.cancelled ? &callbacks.cancelled : nullptr;
  const auto begin = Clock::now();
  Exec ex(scratch);
  ex.profiler = profiler.get();
  ex.cancel = cancel;

  BatchNoise noise = seeded_noise(r);
  const NoiseDraws draws = noise_draws(r);
  if (draws.init) noise.next_aside();
  std::vector<float> start;
  if (draws.start) start = noise.next();
  if (draws.masked) noise.next_aside();
  if (!q.initial_noise.empty()) start = to_nhwc(q.initial_noise, noise.shape());

  std::optional<TiledUnet> tiled;
  if (q.tile_size > 0)
    tiled.emplace(*components.device, *unet, r.tiles, q.batch, r.latent_height, r.latent_width, init.extra);
  size_t call = 0;
  const auto predict = [&](Exec& e, const Tensor& x, double t) {
    use_text(r, states, call++, cancel);
    return tiled ? (*tiled)(e, x, t, profiler.get(), cancel) : unet->step(e, x, t, profiler.get(), cancel);
  };
  const Denoiser denoiser(predict, {.prediction = components.prediction,
                                    .sigma_data = components.sigma_data,
                                    .cfg_scale = r.guidance,
                                    .image_cfg_scale = q.image_cfg_scale,
                                    .instruct = components.is_instruct(),
                                    .part_weights = r.part_weights,
                                    .guidance_rescale = q.guidance_rescale,
                                    .pag_scale = q.pag_scale,
                                    .mimic_scale = q.mimic_scale,
                                    .mimic_percentile = q.mimic_percentile,
                                    .needs_negative = r.sampling.sampler->uses_negative && r.uses_negative(),
                                    .without_negative = unguided_calls(r),
                                    .input_dtype = components.unet->input_dtype()});
  const Tensor x = first_latents(ex, r, init, start, noise.shape());
  SamplerHooks hooks = sampler_hooks(callbacks, begin);
  const auto& sampled = r.sampling.schedule;
  unet->set_progress(
      0, static_cast<int>(sampled.calls.empty() ? sampled.levels.size() - 1 : sampled.calls.size()));
  // An inpainting model sees the picture and the mask itself.
  if (init.latent_mask.empty() || components.is_inpainting())
    return to_floats(*components.device, run_sampler(ex, schedule, r.sampling, denoiser, &noise, x, hooks));
  std::vector<float> keep;
  for (size_t i = 0; i < init.latents.size(); ++i)
    keep.push_back(init.latent_mask[i / 4 % init.latent_mask.size()]);
  const Tensor mask = tensor_from(*components.device, noise.shape(), keep.data());
  const Tensor clean = tensor_from(*components.device, noise.shape(), init.latents.data());
  keep_unmasked(hooks, r, mask, clean, start);
  const Tensor done = run_sampler(ex, schedule, r.sampling, denoiser, &noise, x, hooks);
  return to_floats(*components.device, r.blends_latents ? blend(ex, done, clean, mask) : done);
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

  rows = text.tokenise(r);
  result.warnings = r.warnings;
  result.warnings.insert(result.warnings.end(), rows.warnings.begin(), rows.warnings.end());
  device_peak = 0;
  const MemoryPlan planned = plan(r, rows);
  if (!planned.offload) arena.reserve(planned.arena);
  end_stage("plan");
  const TextStates states = encode_text(rows, r, cancel);
  report("text", 1, 1);
  end_stage("text");

  const InitImage init = encode_init(r, cancel);
  if (!init.pixels.empty()) {
    report("encode", 1, 1);
    end_stage("encode");
  }
  const std::vector<float> latents = sample(r, states, init, callbacks);
  end_stage("sample");

  const auto per_image = latents.size() / static_cast<size_t>(r.request.batch);
  const std::string hashes = embedding_hashes(rows.embeddings);
  for (int i = 0; i < r.request.batch; ++i) {
    const auto* from = latents.data() + static_cast<size_t>(i) * per_image;
    Image image = decode(r, {from, from + per_image}, cancel);
    if (!init.mask.empty()) image = composite(image, init.pixels, init.mask);
    const auto seed = static_cast<uint64_t>(r.request.seed + (r.request.variation_strength > 0 ? 0 : i));
    result.pictures.push_back(
        {std::move(image), seed, describe_picture(r, components, i, hashes, controls), {}});
    if (r.request.keep_latents || r.request.denoising_end)
      result.pictures.back().latents = exchanged_latents(r, {from, from + per_image});
    report("decode", i + 1, r.request.batch);
  }
  end_stage("decode");
  result.arena_used = arena.used_peak();
  result.device_peak = device_peak;
  caches_dropped = false;
  return result;
}

}  // namespace rocm_sd
