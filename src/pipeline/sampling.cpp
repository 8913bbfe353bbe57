// Sampling: the UNet and the sampler, from the first latents to the last.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/step/blend.hpp"
#include "kernels/step/step.hpp"
#include "pipeline/ip_request.hpp"
#include "pipeline/regions.hpp"
#include "pipeline/savings.hpp"
#include "pipeline/size_conditions.hpp"
#include "pipeline/soft_inpaint.hpp"
#include "pipeline/state.hpp"
#include "pipeline/step_throttle.hpp"
#include "pipeline/tiles.hpp"
#include "schedulers/self_attention_guidance.hpp"
#include "schedulers/step_skipping.hpp"

namespace rocm_sd {
namespace {

// Which calls leave guidance out: steps outside of the interval (Diffusers' rule for its guiders), and calls
// below the minimum sigma (A1111's rule). Empty: none does.
std::function<bool(const NoiseLevel&)> unguided_calls(const ResolvedRequest& r) {
  const GenerateRequest& q = r.request;
  if (!leaves_guidance_out(q)) return {};
  std::vector<double> sigmas;  // that the steps begin with
  for (const NoiseLevel& level : r.sampling.schedule.levels) sigmas.push_back(level.sigma);
  sigmas.pop_back();
  const auto steps = static_cast<double>(sigmas.size());
  const int first = static_cast<int>(q.guidance_start * steps),
            last = static_cast<int>(q.guidance_end * steps),
            end = q.savings.t_gate > 0 ? std::min(last, q.savings.t_gate) : last;
  return [sigmas, first, end, least = q.negative_min_sigma, all = q.negative_min_sigma_all,
          call = 0](const NoiseLevel& level) mutable {
    constexpr double kSame = 1 + 1e-9;
    const auto step = std::count_if(sigmas.begin(), sigmas.end(),
                                    [&](double sigma) { return sigma > level.sigma * kSame; });
    const bool second = call++ % 2 == 1;
    return step < first || step >= end || (level.sigma < least && (second || all));
  };
}

// The UNet's last call says where its middle block looks; that part of the clean latents is blurred. The
// values are the host's: the map is small, and its values decide which of the latents change.
Tensor degrade(Exec& ex, const UnetStage& unet, const Tensor& clean) {
  const DegradedShape shape{unet.middle_height(), unet.middle_width(), clean.dim(1), clean.dim(2),
                            clean.dim(3)};
  const std::vector<std::vector<float>> sums = unet.attention_sums();
  const std::vector<float> values = to_floats(ex.device(), clean);
  const size_t per_image = values.size() / sums.size();
  std::vector<float> out;
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto image = degraded_latents(std::span(values).subspan(i * per_image, per_image), sums[i], shape);
    out.insert(out.end(), image.begin(), image.end());
  }
  return tensor_from(ex.device(), clean.shape(), out.data());
}

}  // namespace

void Pipeline::State::use_text(const PreparedRequest& r, const TextStates& states, size_t call,
                               const RunWatch& watch) {
  const std::vector<int64_t>& prompts = r.rows.prompts_at(call);
  if (prompts == prompts_at_work_) return;
  const ConditionShare own = own_conditions(r);
  std::vector<std::vector<float>> sizes = size_conditions(r, components.kind == ModelKind::kSdxlRefiner);
  const auto per_condition = static_cast<int64_t>(prompts.size()) / own.all;
  const auto first = prompts.begin() + own.first * per_condition;
  unet->set_text(states, {first, first + own.count * per_condition},
                 {sizes.begin() + own.first, sizes.begin() + own.first + own.count}, watch);
  prompts_at_work_ = prompts;
}

// Everything that stays the same from step to step.
void Pipeline::State::prepare_unet(const PreparedRequest& r, const TextStates& states, const InitImage& init,
                                   const RunWatch& watch) {
  prompts_at_work_.clear();
  unet->begin_image();
  unet->set_strengths(r.strengths.unet);
  use_text(r, states, 0, watch);
  if (init.extra && r.request.tile_size == 0)
    unet->set_extra_channels(own_rows(own_conditions(r).of(init.extra)));
  unet->set_guidance(r.request.cfg_scale);
  if (!controls_.empty()) unet->set_controls(control_settings(r, planned_controls_), watch);
  if (!r.ip_adapters.empty())
    unet->set_images(image_states_, image_settings(r),
                     r.first_part() - static_cast<int>(own_conditions(r).first));
  std::vector<double> timesteps;
  for (const NoiseLevel& level : r.sampling.schedule.levels)
    if (level.sigma > 0) timesteps.push_back(level.timestep);
  unet->set_schedule(timesteps, watch);
}

SamplerHooks Pipeline::State::sampler_hooks(Exec& ex, const PreparedRequest& r, const Callbacks& callbacks) {
  SamplerHooks hooks;
  std::shared_ptr<StepThrottle> throttle;
  if (!has_company(r)) throttle = std::make_shared<StepThrottle>(*components.device);
  struct Counted {
    std::unique_ptr<PendingRead> nonfinite;
    int64_t of = 0;
  };
  const auto first = std::make_shared<Counted>();
  hooks.on_step = [this, &ex, &r, &callbacks, begin = Clock::now(), throttle,
                   first](const StepReport& report) {
    note_memory();
    if (!has_company(r)) {
      unet->set_progress(report.step, report.total);
      if (throttle) throttle->step();
    }
    // What overflows does so at once, as a rule: the other steps would be wasted. Of a GPU it is
    // looked at when the second step is under way, so that the GPU does not wait.
    if (report.step == 1) *first = {nonfinite_values_later(ex, report.denoised), report.denoised.numel()};
    if (first->nonfinite && (report.step == 2 || first->nonfinite->is_here())) {
      NotFinite found{.model = "UNet", .of = first->of};
      first->nonfinite->get(&found.count);
      first->nonfinite.reset();
      check_windows();
      if (found.count > 0) throw found;
    }
    show_preview(r, report, callbacks);
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

// -> latents [N,h,w,4] f32 of the sampler's last level.
Tensor Pipeline::State::sample(const PreparedRequest& r, const TextStates& states, const InitImage& init,
                               std::future<FirstNoise> noise, const Callbacks& callbacks) {
  const RunWatch who = watch(callbacks);
  return run_with_retry(Part::kUnet, r, [&] {
    if (r.shared) r.shared->begin(r, states, size_conditions(r, components.kind == ModelKind::kSdxlRefiner));
    if (!has_company(r)) prepare_unet(r, states, init, who);
    Exec ex(scratch);
    ex.profiler = who.profiler;
    ex.cancel = who.cancel;
    FirstNoise first = noise.valid() ? noise.get() : draw_first_noise(seeded_noise(r), noise_draws(r));
    Tensor latents = run_steps(ex, r, states, init, std::move(first), callbacks);
    const NotFinite found{"UNet", nonfinite_values(ex, latents), latents.numel()};
    check_windows();
    if (found.count > 0) throw found;
    return latents;
  });
}

// What the sampler starts from, in its space. start: [N,h,w,4] noise, or empty with denoising_start.
Tensor Pipeline::State::first_latents(Exec& ex, const ResolvedRequest& r, const InitImage& init,
                                      const std::vector<float>& start, const Shape& shape) {
  Device& device = *components.device;
  if (r.request.denoising_start) {
    const bool noisy = !r.request.init_latents.empty();
    const double sigma = r.sampling.schedule.levels.front().sigma;
    const bool preserving = r.sampling.sampler->space == LatentSpace::kVariancePreserving;
    const double scale = noisy && preserving ? 1 / std::sqrt(sigma * sigma + 1) : 1;
    return linear_combination(ex, {{scale, init.latents}});
  }
  const Tensor noise = tensor_from(device, shape, start.data());
  // Diffusers' inpainting pipelines take pure noise where everything is to be redrawn.
  const bool repaints_all = r.request.mask && r.strength >= 1.0;
  if (!init.latents || components.is_instruct() || repaints_all)
    return start_from_noise(ex, r.sampling, noise);
  return start_from_latents(ex, r.sampling, init.latents, noise);
}

Tensor Pipeline::State::run_steps(Exec& ex, const PreparedRequest& r, const TextStates& states,
                                  const InitImage& init, FirstNoise first, const Callbacks& callbacks) {
  const GenerateRequest& q = r.request;
  const RunWatch who = watch(callbacks);
  auto& [noise, start] = first;
  if (!q.initial_noise.empty()) start = to_nhwc(q.initial_noise, noise.shape());

  const ConditionShare own = own_conditions(r);
  std::optional<TiledUnet> tiled;
  if (q.tile_size > 0)
    tiled.emplace(ex, *unet, r.tiles, q.batch, r.latent_height, r.latent_width, own.of(init.extra));
  size_t call = 0;
  const RowSplit* rows = has_company(r) ? nullptr : unet->shape().rows;
  if (rows) rows->begin_image();
  std::optional<RegionBlend> regions;
  if (!r.region_shares.empty()) regions.emplace(*components.device, r, q.batch);
  std::function<bool(const NoiseLevel&)> unguided = unguided_calls(r);
  if (unguided && r.drops_negative && !regions)
    unguided = [this, asked = unguided](const NoiseLevel& level) {
      const bool left_out = asked(level);
      if (unet) unet->set_unguided(left_out);  // there is none once others keep this image company
      return left_out;
    };
  const auto run_unet = [&](Exec& e, const Tensor& x, double t) {
    const Tensor input = own_rows(own.of(x));
    if (rows) rows->begin_call();
    const Tensor predicted = tiled ? (*tiled)(e, input, t, who) : unet->step(e, input, t, who);
    if (rows) rows->end_call();
    return gather_predictions(e, r, predicted);
  };
  const auto predict = [&](Exec& e, const Tensor& x, double t) {
    const size_t number = call++;
    if (r.shared)
      if (Tensor shared = r.shared->call(x, t, r.rows.prompts_at(number))) return shared;
    use_text(r, states, number, who);
    return regions ? regions->average(e, run_unet(e, regions->spread(e, x), t)) : run_unet(e, x, t);
  };
  const SelfAttentionGuidance self_attention{
      q.sag_scale, [this](Exec& e, const Tensor& clean) { return degrade(e, *unet, clean); },
      [this, who](Exec& e, const Tensor& x, double t) { return unet->step_first(e, x, t, who); }};
  const Denoiser denoiser(
      predict, {.prediction = components.prediction,
                .sigma_data = components.sigma_data,
                .cfg_scale = r.guidance,
                .image_cfg_scale = q.image_cfg_scale,
                .instruct = components.is_instruct(),
                .part_weights = regions ? std::vector<double>{1} : r.part_weights,
                .guidance_rescale = q.guidance_rescale,
                .pag_scale = q.pag_scale,
                .self_attention = self_attention,
                .mimic_scale = q.mimic_scale,
                .mimic_percentile = q.mimic_percentile,
                .needs_negative = r.sampling.sampler->uses_negative && r.uses_negative(),
                .without_negative = unguided,
                .smaller_batch = r.drops_negative && (draws_alone() || divides_tensors()) && !regions &&
                                 !tiled && !has_company(r) && unet->can_drop_negative(),
                .input_dtype = components.unet->input_dtype()});
  const Tensor x = first_latents(ex, r, init, start, noise.shape());
  SamplerHooks hooks = sampler_hooks(ex, r, callbacks);
  std::optional<StepSkipper> skipper;
  if (q.savings.sada) {
    std::vector<double> sigmas;
    for (const NoiseLevel& level : r.sampling.schedule.levels) sigmas.push_back(level.sigma);
    hooks.skipper = &skipper.emplace(std::move(sigmas), [this] { unet->note_skipped(); });
  }
  const auto& sampled = r.sampling.schedule;
  if (!has_company(r))
    unet->set_progress(
        0, static_cast<int>(sampled.calls.empty() ? sampled.levels.size() - 1 : sampled.calls.size()));
  // An inpainting model sees the image and the mask itself.
  if (init.latent_mask.empty() || components.is_inpainting())
    return run_sampler(ex, schedule, r.sampling, denoiser, &noise, x, hooks);
  if (const std::optional<SoftSettings> soft = soft_settings(q.mask_blend)) {
    hooks.after_denoise = [soft, mask = init.latent_mask,
                           original = to_floats(*components.device, init.latents)](
                              Exec& e, const Tensor& denoised, const NoiseLevel& level) {
      const std::vector<float> current = to_floats(e.device(), denoised);
      return tensor_from(e.device(), denoised.shape(),
                         soft_blend(*soft, original, current, mask, level.sigma).data());
    };
    return run_sampler(ex, schedule, r.sampling, denoiser, &noise, x, hooks);
  }
  std::vector<float> keep;
  for (int64_t i = 0; i < init.latents.numel(); ++i)
    keep.push_back(init.latent_mask[static_cast<size_t>(i) / 4 % init.latent_mask.size()]);
  const Tensor mask = tensor_from(*components.device, noise.shape(), keep.data());
  keep_unmasked(hooks, r, mask, init.latents, start);
  const Tensor done = run_sampler(ex, schedule, r.sampling, denoiser, &noise, x, hooks);
  return r.blends_latents ? blend(ex, done, init.latents, mask) : done;
}

}  // namespace rocm_sd
