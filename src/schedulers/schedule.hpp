// The noise levels that a sampler visits: A1111's, ComfyUI's, sd.cpp's and Diffusers' schedules.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedulers/noise_schedule.hpp"

namespace rocm_sd {

// One stop of a sampler. sigma and alpha_bar say the same (sigma^2 = 1 / alpha_bar - 1); at zero terminal SNR
// alpha_bar may be 0 while sigma is capped.
struct NoiseLevel {
  double sigma = 0;
  double alpha_bar = 1;
  double timestep = 0;  // what the UNet is told; may be fractional
};
NoiseLevel level_of_sigma(const NoiseSchedule& noise, double sigma);     // timestep by interpolation
NoiseLevel level_of_timestep(const NoiseSchedule& noise, int timestep);  // an index of the table, clamped

// steps + 1 levels, noisiest first; the last is where the picture is (sigma 0 unless asked otherwise).
struct Schedule {
  std::vector<NoiseLevel> levels;
  // Diffusers' DDIM and PNDM step from timestep t to t - stride, whatever level comes next; 0: to the next
  // one.
  int stride = 0;
  // Diffusers' PNDM: the timestep of each UNet call, of which the first `runge_kutta_calls` of the whole
  // schedule are Runge-Kutta's (they stay whole where strength drops calls). Empty for other samplers.
  std::vector<int> calls, runge_kutta_calls;
  int steps() const { return static_cast<int>(levels.size()) - 1; }
  std::vector<double> sigmas() const;
};

enum class ScheduleKind {
  kNormal,       // uniform in timestep, both ends included: A1111 "Uniform", ComfyUI normal, sd.cpp discrete
  kKarras,       // Karras et al. 2022, equation 5
  kExponential,  // uniform in log sigma
  kPolyexponential,  // log sigma by a power ramp
  kSgmUniform,       // uniform in timestep, the low end left out
  kSimple,           // every k-th training sigma
  kDdimUniform,      // every k-th training sigma from timestep 1; may hold more steps than asked for
  kBeta,             // sigma by quantiles of a beta distribution: A1111 and Diffusers
  kBetaTimesteps,    // timestep by quantiles of a beta distribution: ComfyUI, sd.cpp
  kKlOptimal,        // Sabour et al. 2024, theorem 3.1: uniform in atan(sigma)
  kAlignYourSteps,   // Sabour et al. 2024: optimised tables, log-linear between their entries
  kLinearQuadratic,  // a linear, then a quadratic half
  kSmoothstep,       // timestep by 3x^2 - 2x^3: sd.cpp
  kDdim,             // A1111's own timesteps for DDIM and PLMS: k * (1000 / steps) + 1
  kLcm,              // every k-th of 50 original steps
  kLinspace,         // Diffusers' timestep_spacing
  kLeading,
  kTrailing,
  kExplicit,  // ScheduleArgs::sigmas
};

// How Diffusers' classes turn a spacing into timesteps (kLinspace, kLeading, kTrailing only).
enum class TimestepGrid {
  kFractional,  // Euler, Heun, DPM2, LMS: linspace is not rounded
  kSolver,      // DPMSolver, DEIS, UniPC: of steps + 1 points the last is dropped
  kRounded,     // DDIM, DDPM, PNDM
};

enum class TimestepRounding { kNone, kNearest, kDown };

enum class LastLevel {
  kZero,
  kSigmaMin,     // the table's first entry: final_sigmas_type "sigma_min", set_alpha_to_one false
  kRepeatsLast,  // the last level once more: DEIS, UniPC and SASolver over reshaped sigmas
};

// Diffusers' PNDM: what is called beside each level once.
enum class PndmStart {
  kNone,        // not PNDM
  kPlms,        // the second level twice (skip_prk_steps)
  kRungeKutta,  // twelve calls for the first three levels
};

struct ScheduleArgs {
  ScheduleKind kind = ScheduleKind::kNormal;
  int steps = 20;
  double rho = 0;        // 0: the kind's own (Karras 7, polyexponential 1)
  double sigma_min = 0;  // 0: the model's
  double sigma_max = 0;  // 0: the model's
  double beta_a = 0.6, beta_b = 0.6;
  std::vector<double> sigmas;        // kExplicit: strictly decreasing; 0 is appended where it is missing
  bool sdxl = false;                 // which table of kAlignYourSteps
  bool discard_penultimate = false;  // one more step is made and the last sigma before 0 left out
  // Diffusers' spacings:
  TimestepGrid grid = TimestepGrid::kFractional;
  int steps_offset = 0;  // kLeading; Stable Diffusion's configurations have 1
  std::optional<ScheduleKind>
      reshape;  // kKarras, kExponential or kBeta over the spaced sigmas (use_*_sigmas)
  TimestepRounding rounding = TimestepRounding::kNone;  // of timesteps found by interpolation
  LastLevel last = LastLevel::kZero;
  int lcm_original_steps = 50;  // kLcm
  // Euler's interpolation_type "log_linear": sigmas uniform in log sigma, the last of them the end, whatever
  // the timesteps.
  bool log_linear = false;
  // kSolver: timesteps whose log(alpha / sigma) lies below are left out (lambda_min_clipped).
  double lambda_min = -std::numeric_limits<double>::infinity();
  PndmStart pndm = PndmStart::kNone;
};

// Throws UsageError for steps outside 1..1000 or above the training steps where each must be a timestep of
// its own, and for explicit sigmas that are empty, not finite, negative or not decreasing.
Schedule make_schedule(const NoiseSchedule& noise, const ScheduleArgs& args);

// Which levels an image-to-image run of a strength visits.
enum class StrengthRule {
  kDiffusers,  // the last floor(steps * strength) steps
  kA1111,      // the last floor(steps * min(strength, 0.999)) + 1 steps
};
// Drops leading levels (of PNDM: calls); strength 1 keeps all. `asked` steps are what the strength is a share
// of where the schedule has others, 0: the schedule's. Throws UsageError unless 0 <= strength <= 1, or where
// not one step is left.
Schedule truncate_for_strength(const NoiseSchedule& noise, const Schedule& schedule, double strength,
                               StrengthRule rule, int asked = 0);

// Without the first `dropped` levels (of PNDM: calls), fewer than there are steps.
Schedule without_first(const NoiseSchedule& noise, const Schedule& schedule, int dropped);

// A schedule's name in A1111 ("SGM Uniform"), ComfyUI and sd.cpp ("sgm_uniform"), in any case, with spaces,
// dashes and underscores alike. Empty for "automatic" (the sampler's own). Throws UsageError with the nearest
// and all accepted names.
std::optional<ScheduleKind> parse_schedule(std::string_view name);
std::string_view to_string(ScheduleKind kind);       // "sgm_uniform"
std::string_view schedule_label(ScheduleKind kind);  // "SGM Uniform": A1111's infotext
std::vector<std::string> schedule_names();           // one per kind, for help texts

}  // namespace rocm_sd
