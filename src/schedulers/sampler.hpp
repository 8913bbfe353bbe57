// Samplers: from noise to latents by repeated denoising. One file per sampler, one row per sampler.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/exec.hpp"
#include "schedulers/brownian.hpp"
#include "schedulers/denoiser.hpp"
#include "schedulers/noise.hpp"
#include "schedulers/schedule.hpp"

namespace rocm_sd {

enum class SolverType { kMidpoint, kHeun, kBh1, kBh2 };
enum class StepNoise { kBrownian, kIndependent };

// Dynamic thresholding (Saharia et al., "Imagen", 2022, section 2.3): each image's clean latents are clamped
// to the `ratio` quantile of their sizes, within 1..most, and divided by it.
struct Thresholding {
  double ratio = 0.995, most = 1;
};

// Unset fields take the sampler's own default.
struct SamplerOptions {
  std::optional<double> eta;  // share of the full stochastic step, >= 0; TCD: gamma, 0..1
  double s_churn = 0;         // Karras et al. 2022, algorithm 2
  double s_tmin = 0, s_tmax = std::numeric_limits<double>::infinity();
  double s_noise = 1;
  std::optional<int> order;  // of a multistep method
  std::optional<SolverType> solver;
  std::optional<StepNoise> step_noise;    // SDE samplers: a Brownian path (k-diffusion) or fresh (Diffusers)
  std::optional<bool> lower_order_final;  // the order falls towards the last step
  // Of Diffusers' configurations:
  bool euler_at_final = false;   // DPM-Solver multistep: the last step is of order 1
  bool predict_noise = false;    // DPM-Solver, UniPC, SA-Solver: integrate epsilon, not the clean latents
  bool large_variance = false;   // DDPM: variance_type fixed_large
  double timestep_scaling = 10;  // LCM's boundary condition
  std::optional<int> corrector_order;  // SA-Solver; its predictor's is `order`
  std::vector<int> uncorrected_steps;  // UniPC: disable_corrector
  std::optional<uint64_t> path_seed;   // SDE samplers: of one Brownian path for the whole batch
  double clip_sample = 0;              // more than 0: clean latents are clamped to -clip_sample..clip_sample
  std::optional<Thresholding> thresholding;
};

struct StepReport {
  int step = 0, total = 0;  // 1-based
  double sigma = 0;         // of the level that the step started from
  const Tensor& latents;    // [N,H,W,C] f32 after the step, in the sampler's space
  const Tensor& denoised;   // [N,H,W,C] f32: what a preview shows
};

class StepSkipper;

struct SamplerHooks {
  // After each step. False stops the run with CancelledError.
  std::function<bool(const StepReport&)> on_step;
  // Before and after each denoiser call; each returns the tensor to go on with (inpainting puts the known
  // region back, noised to the level, or clean). x is in `space`.
  std::function<Tensor(Exec&, const Tensor& x, const NoiseLevel&, LatentSpace space)> before_denoise;
  std::function<Tensor(Exec&, const Tensor& denoised, const NoiseLevel&)> after_denoise;
  // Foretells some predictions in place of the denoiser: of a sampler that calls it once in each step, made
  // for the plan's levels. Null: none.
  StepSkipper* skipper = nullptr;
};

class SamplerRun;
struct SamplerRow {
  std::string_view name;                  // ours: "dpmpp_2m"
  std::string_view label;                 // A1111's: "DPM++ 2M"
  std::vector<std::string_view> aliases;  // ComfyUI's, sd.cpp's, old A1111's and Diffusers' names
  Tensor (*sample)(SamplerRun&, Tensor x);
  // What "automatic" means:
  ScheduleKind schedule = ScheduleKind::kNormal;
  bool discard_penultimate = false;  // the last sigma before 0 is left out
  bool end_at_sigma_min = false;     // for schedules made of timesteps
  LatentSpace space = LatentSpace::kVarianceExploding;
  bool needs_timesteps = false;  // those of training: not with NoiseSchedule::log_sigma_timesteps()
  double eta = 0;                // default; more than 0: draws noise
  int order = 1, max_order = 1;
  SolverType solver = SolverType::kMidpoint;
  StepNoise step_noise = StepNoise::kIndependent;
  bool lower_order_final = false;
  bool uses_negative = false;  // the unconditional prediction, at any scale of guidance
  int (*unet_calls)(int steps) = [](int steps) { return steps; };  // where the schedule ends at sigma 0
};
std::span<const SamplerRow> samplers();
// By any accepted name, in any case. Throws UsageError with the nearest and all accepted names.
const SamplerRow& find_sampler(std::string_view name);

enum class StartScale {
  kSigma,               // noise * sigma: k-diffusion
  kVariancePreserving,  // noise * sqrt(sigma^2 + 1): Diffusers' "leading" spacing and its solvers
};

// What the user asked for, in any project's words.
struct SamplingRequest {
  std::string sampler = "DPM++ 2M";  // also the old combined names: "DPM++ 2M Karras", "k_dpmpp_2m_ka"
  std::string schedule = "automatic";
  bool schedule_is_set =
      false;  // schedule_args.kind counts and `schedule` does not (Diffusers' configurations)
  ScheduleArgs schedule_args;  // kind, steps, sigmas and discard_penultimate are overwritten
  int steps = 20;              // 1..1000
  std::vector<double> sigmas;  // replaces the schedule where not empty
  double strength = 1;         // image to image
  int kept_steps = 0;          // more than 0: the last so many of `steps`, whatever the strength
  StrengthRule strength_rule = StrengthRule::kDiffusers;
  StartScale start_scale = StartScale::kSigma;
  bool finish_preserving = false;  // Diffusers' solvers: a last sigma above 0 leaves latents scaled for it
  SamplerOptions options;
};

struct SamplingPlan {
  const SamplerRow* sampler = nullptr;
  SamplerOptions options;  // every default filled in
  ScheduleKind schedule_kind = ScheduleKind::kNormal;
  Schedule schedule;          // the levels that will be visited
  double full_sigma_min = 0;  // before truncation: the Brownian path's range
  double full_sigma_max = 0;
  int skipped_steps = 0;     // by strength: what the schedule had before its first level
  int cut_steps = 0;         // by denoising_end: what it had after its last one
  double start_factor = 1;   // of the initial noise
  double finish_factor = 1;  // of the latents after the last step
  int unet_calls() const;    // how often the UNet will run, guidance being one batch
};
// Gives the request another schedule: a spacing of Diffusers' in place of that of the configuration that the
// request comes from, or any other schedule, which takes nothing of a configuration's. "automatic" leaves it.
// Throws UsageError for an unknown name.
void set_schedule(SamplingRequest& request, const std::string& name);
// Resolves names and options and makes the schedule. Throws UsageError that names the offending option.
SamplingPlan plan_sampling(const NoiseSchedule& noise, const SamplingRequest& request);

// The latents that a run starts from, [N,H,W,C] f32 in the sampler's space: noise at the first level, or
// clean latents with noise of the first level.
Tensor start_from_noise(Exec& ex, const SamplingPlan& plan, const Tensor& noise);
Tensor start_from_latents(Exec& ex, const SamplingPlan& plan, const Tensor& latents, const Tensor& noise);
// Clean latents and noise mixed at a level, in a space; all [N,H,W,C] f32.
Tensor add_noise(Exec& ex, const Tensor& latents, const Tensor& noise, const NoiseLevel& level,
                 LatentSpace space);

// One run of a sampler: what it may ask of its surroundings.
class SamplerRun {
 public:
  // All references must outlive the run. noise draws the ancestral noise (its first call, the initial noise,
  // is expected to be past) and may be null for a sampler that draws none.
  SamplerRun(Exec& exec, const NoiseSchedule& noise_schedule, const SamplingPlan& plan,
             const Denoiser& denoiser, BatchNoise* noise, const SamplerHooks& hooks);

  Exec& ex;
  const NoiseSchedule& noise_schedule;
  const SamplingPlan& plan;
  const SamplerOptions& options;  // eta, order, solver, step_noise and lower_order_final are set
  const std::vector<NoiseLevel>& levels;
  int total;  // steps that report() announces; a sampler with steps of its own sets it first

  int steps() const { return plan.schedule.steps(); }
  // Of the schedule before strength and denoising_end: how many steps it has, and has from step i on.
  int full_steps() const { return plan.skipped_steps + steps_left(0); }
  int steps_left(int i) const { return steps() + plan.cut_steps - i; }
  double sigma(int i) const { return levels[static_cast<size_t>(i)].sigma; }
  Prediction prediction() const { return denoiser_.args().prediction; }

  // Clean latents for x at levels[i], at any level, or at a sigma between levels. Where hooks.before_denoise
  // is set, x becomes what it returned. raw: receives the prediction before options.clip_sample and
  // options.thresholding; negative: the unconditional one.
  Tensor denoise(Tensor& x, int i) { return denoise(x, levels[static_cast<size_t>(i)]); }
  Tensor denoise(Tensor& x, const NoiseLevel& level, Tensor* raw = nullptr, Tensor* negative = nullptr);
  Tensor denoise_at(Tensor& x, double sigma) { return denoise(x, level_of_sigma(noise_schedule, sigma)); }

  Tensor noise();                                // fresh, [N,H,W,C] f32
  Tensor noise_between(double from, double to);  // by options.step_noise
  // Ends a step, 0-based: calls hooks.on_step. Throws CancelledError where it says stop.
  void report(int step, double sigma, const Tensor& latents, const Tensor& denoised);

 private:
  BatchNoise& noise_source();
  Tensor limited(const Tensor& denoised) const;
  // The denoiser's prediction, or the one that the steps before foretell.
  Tensor predicted(const Tensor& x, const NoiseLevel& level, Tensor* negative);

  const Denoiser& denoiser_;
  BatchNoise* noise_;
  const SamplerHooks& hooks_;
  std::unique_ptr<BrownianNoise> brownian_;
};

// Runs the plan's sampler from x (made by start_from_*) to clean latents [N,H,W,C] f32.
Tensor run_sampler(Exec& ex, const NoiseSchedule& noise_schedule, const SamplingPlan& plan,
                   const Denoiser& denoiser, BatchNoise* noise, Tensor x, const SamplerHooks& hooks = {});

}  // namespace rocm_sd
