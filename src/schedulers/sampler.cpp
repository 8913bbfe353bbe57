// One run of a sampler: denoising, noise, hooks and reports.
#include "schedulers/sampler.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/step/step.hpp"
#include "schedulers/step_skipping.hpp"

namespace rocm_sd {

Tensor add_noise(Exec& ex, const Tensor& latents, const Tensor& noise, const NoiseLevel& level,
                 LatentSpace space) {
  require(latents.shape() == noise.shape(), "add_noise: latents ", latents.shape(), " and noise ",
          noise.shape(), " differ");
  if (space == LatentSpace::kVarianceExploding)
    return linear_combination(ex, {{1, latents}, {level.sigma, noise}});
  return linear_combination(ex,
                            {{std::sqrt(level.alpha_bar), latents}, {std::sqrt(1 - level.alpha_bar), noise}});
}

Tensor start_from_noise(Exec& ex, const SamplingPlan& plan, const Tensor& noise) {
  return linear_combination(ex, {{plan.start_factor, noise}});
}

Tensor start_from_latents(Exec& ex, const SamplingPlan& plan, const Tensor& latents, const Tensor& noise) {
  return add_noise(ex, latents, noise, plan.schedule.levels.front(), plan.sampler->space);
}

SamplerRun::SamplerRun(Exec& exec, const NoiseSchedule& schedule, const SamplingPlan& sampling_plan,
                       const Denoiser& denoiser, BatchNoise* noise, const SamplerHooks& hooks)
    : ex(exec),
      noise_schedule(schedule),
      plan(sampling_plan),
      options(sampling_plan.options),
      levels(sampling_plan.schedule.levels),
      total(sampling_plan.schedule.steps()),
      denoiser_(denoiser),
      noise_(noise),
      hooks_(hooks) {}

namespace {

// torch.quantile's of the sizes of `values`: linear between neighbours.
float quantile_of_sizes(std::span<const float> values, double ratio) {
  std::vector<float> sizes;
  for (const float v : values) sizes.push_back(std::isnan(v) ? HUGE_VALF : std::fabs(v));  // sorts
  std::ranges::sort(sizes);
  const double at = ratio * static_cast<double>(sizes.size() - 1);
  const size_t low = static_cast<size_t>(at), high = std::min(low + 1, sizes.size() - 1);
  return static_cast<float>(sizes[low] + (at - static_cast<double>(low)) * (sizes[high] - sizes[low]));
}

// [H,W,N*C] -> [N,H,W,C].
std::vector<float> images_of_channels(const std::vector<float>& in, const Shape& shape) {
  const int64_t images = shape[0], pixels = shape[1] * shape[2], channels = shape[3];
  std::vector<float> out(in.size());
  for (int64_t n = 0; n < images; ++n)
    for (int64_t p = 0; p < pixels; ++p)
      for (int64_t c = 0; c < channels; ++c)
        out[static_cast<size_t>((n * pixels + p) * channels + c)] =
            in[static_cast<size_t>((p * images + n) * channels + c)];
  return out;
}

}  // namespace

// Both are meant for pixels, not latents, and rare: the host does them.
Tensor SamplerRun::limited(const Tensor& denoised) const {
  if (!options.thresholding && options.clip_sample <= 0) return denoised;
  std::vector<float> values = to_floats(ex.device(), denoised);
  const size_t per_image = values.size() / static_cast<size_t>(denoised.dim(0));
  for (size_t begin = 0; begin < values.size(); begin += per_image) {
    const std::span<float> image = std::span(values).subspan(begin, per_image);
    float limit = static_cast<float>(options.clip_sample), divisor = 1;
    if (options.thresholding) {
      const float most = static_cast<float>(options.thresholding->most);
      divisor = limit = std::min(std::max(quantile_of_sizes(image, options.thresholding->ratio), 1.0f), most);
    }
    for (float& v : image) v = std::min(std::max(v, -limit), limit) / divisor;
  }
  return tensor_from(ex.device(), denoised.shape(), values.data());
}

Tensor SamplerRun::predicted(const Tensor& x, const NoiseLevel& level, Tensor* negative) {
  const LatentSpace space = plan.sampler->space;
  // Samplers may ask by a copy of a level; one of their own has no place among the steps.
  const auto found = std::ranges::find(levels, level.sigma, &NoiseLevel::sigma);
  if (!hooks_.skipper || found == levels.end() || negative) return denoiser_(ex, x, level, space, negative);
  const auto step = static_cast<int>(found - levels.begin());
  const double factor =
      space == LatentSpace::kVarianceExploding ? 1 : std::sqrt(level.sigma * level.sigma + 1);
  const Tensor exploded = factor == 1 ? x : linear_combination(ex, {{factor, x}});
  Tensor clean = hooks_.skipper->foretold(ex, exploded, step);
  if (!clean) clean = denoiser_(ex, x, level, space, nullptr);
  hooks_.skipper->note(ex, exploded, clean, step);
  return clean;
}

Tensor SamplerRun::denoise(Tensor& x, const NoiseLevel& level, Tensor* raw, Tensor* negative) {
  const LatentSpace space = plan.sampler->space;
  if (hooks_.before_denoise) x = hooks_.before_denoise(ex, x, level, space);
  Tensor denoised = predicted(x, level, negative);
  if (raw) *raw = denoised;
  denoised = limited(denoised);
  if (hooks_.after_denoise) denoised = hooks_.after_denoise(ex, denoised, level);
  return denoised;
}

BatchNoise& SamplerRun::noise_source() {
  if (!noise_)
    throw InternalError(concat("sampler ", plan.sampler->label, " draws noise, but has no source"));
  return *noise_;
}

Tensor SamplerRun::noise() {
  const std::vector<float> values = noise_source().next();
  return tensor_from(ex.device(), noise_->shape(), values.data());
}

Tensor SamplerRun::noise_between(double from, double to) {
  if (*options.step_noise == StepNoise::kIndependent) return noise();
  if (!brownian_) {
    std::vector<uint64_t> seeds;
    for (const ImageSeed& image : noise_source().seeds()) seeds.push_back(image.seed);
    Shape shape = noise_->shape();
    if (options.path_seed) {  // one path of all images' values: [1,H,W,N*C]
      seeds = {*options.path_seed};
      shape = {1, shape[1], shape[2], shape[0] * shape[3]};
    }
    brownian_ = std::make_unique<BrownianNoise>(noise_->kind(), std::move(seeds), shape, plan.full_sigma_min,
                                                plan.full_sigma_max);
  }
  std::vector<float> values = brownian_->between(from, to);
  if (options.path_seed) values = images_of_channels(values, noise_->shape());
  return tensor_from(ex.device(), noise_->shape(), values.data());
}

void SamplerRun::report(int step, double sigma, const Tensor& latents, const Tensor& denoised) {
  if (!hooks_.on_step) return;
  if (!hooks_.on_step({step + 1, total, sigma, latents, denoised}))
    throw CancelledError(concat("cancelled after step ", step + 1, " of ", total));
}

Tensor run_sampler(Exec& ex, const NoiseSchedule& noise_schedule, const SamplingPlan& plan,
                   const Denoiser& denoiser, BatchNoise* noise, Tensor x, const SamplerHooks& hooks) {
  require(x.rank() == 4 && x.dtype() == DType::kF32, "sampler: expected f32 latents [N,H,W,C], got ",
          x.shape());
  require(!noise || noise->shape() == x.shape(), "sampler: latents ", x.shape(), " and noise ",
          noise ? noise->shape() : Shape{}, " differ");
  SamplerRun run(ex, noise_schedule, plan, denoiser, noise, hooks);
  x = plan.sampler->sample(run, std::move(x));
  if (plan.finish_factor != 1) x = linear_combination(ex, {{plan.finish_factor, x}});
  return x;
}

}  // namespace rocm_sd
