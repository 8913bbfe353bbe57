// Samplers: from noise to latents by repeated denoising. One file per sampler, one row per sampler here.
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

// Unset fields take the sampler's own default.
struct SamplerOptions {
  std::optional<double> eta;  // share of the full stochastic step, 0..; TCD: gamma, 0..1
  double s_churn = 0;         // Karras et al. 2022, algorithm 2
  double s_tmin = 0, s_tmax = std::numeric_limits<double>::infinity();
  double s_noise = 1;
  std::optional<int> order;  // multistep order
  std::optional<SolverType> solver;
  std::optional<StepNoise>
      step_noise;                 // SDE samplers: a Brownian path (k-diffusion) or fresh noise (Diffusers)
  bool lower_order_final = true;  // order falls towards the last step
  bool corrector_first = true;    // UniPC: correct the very first step, too
};

struct StepReport {
  int step = 0, total = 0;  // 1-based
  double sigma = 0;         // of the level that the step started from
  const Tensor& latents;    // [N,H,W,C] f32 after the step, in the sampler's space
  const Tensor& denoised;   // [N,H,W,C] f32: what a preview shows
};

struct SamplerHooks {
  // After each step. False stops the run with CancelledError.
  std::function<bool(const StepReport&)> on_step;
  // Before and after each denoiser call; each returns the tensor to go on with (inpainting puts the known
  // region back, noised to the level, or clean). x is in `space`.
  std::function<Tensor(Exec&, const Tensor& x, const NoiseLevel&, LatentSpace)> before_denoise;
  std::function<Tensor(Exec&, const Tensor& denoised, const NoiseLevel&)> after_denoise;
};

class SamplerRun;
struct SamplerRow {
  std::string_view name;                  // ours: "dpmpp_2m"
  std::string_view label;                 // A1111's: "DPM++ 2M"
  std::vector<std::string_view> aliases;  // ComfyUI's, sd.cpp's and Diffusers' names
  Tensor (*sample)(SamplerRun&, Tensor x);
  LatentSpace space = LatentSpace::kVarianceExploding;
  ScheduleKind schedule = ScheduleKind::kNormal;  // "automatic"
  bool discard_penultimate = false;
  double eta = 0;           // default
  int order = 1;            // default
  int evaluations = 1;      // UNet calls per step
  bool stochastic = false;  // draws noise during the run
};
std::span<const SamplerRow> samplers();
// By any accepted name, in any case. Throws UsageError with the nearest and all accepted names.
const SamplerRow& find_sampler(std::string_view name);

// What the user asked for, in any project's words.
struct SamplingRequest {
  std::string sampler = "DPM++ 2M";  // also the old combined names: "DPM++ 2M Karras", "k_dpmpp_2m_ka"
  std::string schedule = "automatic";
  ScheduleArgs schedule_args;  // kind is overwritten unless schedule is "" (as from_diffusers makes)
  int steps = 20;              // 1..1000
  std::vector<double> sigmas;  // replaces the schedule where not empty
  double strength = 1;         // image to image
  StrengthRule strength_rule = StrengthRule::kDiffusers;
  SamplerOptions options;
};

struct SamplingPlan {
  const SamplerRow* sampler = nullptr;
  SamplerOptions options;  // every default filled in
  ScheduleKind schedule_kind = ScheduleKind::kNormal;
  Schedule schedule;                // the levels that will be visited
  double full_sigma_max = 0;        // before truncation: the Brownian path's range
  bool scale_start_by_one = false;  // Diffusers' "leading": noise * sqrt(sigma^2 + 1)
  std::string sampler_label() const { return std::string(sampler->label); }
  int unet_calls() const;  // how often the UNet will run
};
// Resolves names and options and makes the schedule. Throws UsageError that names the offending option.
SamplingPlan plan_sampling(const NoiseSchedule& noise, const SamplingRequest& request);

// The latents that a run starts from, [N,H,W,C] f32 in the sampler's space: noise at the first level, or
// clean latents with noise of the first level.
Tensor start_from_noise(Exec& ex, const SamplingPlan& plan, const Tensor& noise);
Tensor start_from_latents(Exec& ex, const SamplingPlan& plan, const Tensor& latents, const Tensor& noise);
// x = clean latents and noise mixed at a level, in a space.
Tensor add_noise(Exec& ex, const Tensor& latents, const Tensor& noise, const NoiseLevel& level,
                 LatentSpace space);

// One run of a sampler: what it may ask of its surroundings.
class SamplerRun {
 public:
  // All references must outlive the run. noise draws the ancestral noise (its first call, the initial noise,
  // is expected to be past) and may be null for a sampler that is not stochastic.
  SamplerRun(Exec& ex, const NoiseSchedule& noise_schedule, const SamplingPlan& plan,
             const Denoiser& denoiser, BatchNoise* noise, const SamplerHooks& hooks = {});

  Exec& ex;
  const NoiseSchedule& noise_schedule;
  const SamplingPlan& plan;
  const SamplerOptions& options;
  const std::vector<NoiseLevel>& levels;
  int steps() const { return plan.schedule.steps(); }
  double sigma(int i) const { return levels[static_cast<size_t>(i)].sigma; }

  // Clean latents for x at levels[i], at any level, or at a sigma between levels. Applies the hooks; where
  // before_denoise is set, x is replaced by what it returned.
  Tensor denoise(Tensor& x, int i);
  Tensor denoise(Tensor& x, const NoiseLevel& level);
  Tensor denoise_at(Tensor& x, double sigma);

  Tensor noise();                                // fresh, [N,H,W,C] f32
  Tensor noise_between(double from, double to);  // per options.step_noise
  // Ends step i: calls on_step. Throws CancelledError where it says stop.
  void report(int i, const Tensor& latents, const Tensor& denoised);

 private:
  const Denoiser& denoiser_;
  BatchNoise* noise_;
  const SamplerHooks& hooks_;
  std::unique_ptr<BrownianNoise> brownian_;
};

// Runs the plan's sampler from x (made by start_from_*) to clean latents [N,H,W,C] f32.
Tensor run_sampler(Exec& ex, const NoiseSchedule& noise_schedule, const SamplingPlan& plan,
                   const Denoiser& denoiser, BatchNoise* noise, Tensor x, const SamplerHooks& hooks = {});

}  // namespace rocm_sd
