// The noise schedule that a model was trained with: alpha_bar and sigma for every timestep.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace rocm_sd {

enum class BetaSchedule { kLinear, kScaledLinear, kSquaredCosine, kSigmoid, kLaplace, kExponential };

// "linear", "scaled_linear", "squaredcos_cap_v2", "sigmoid", "laplace", "exp" (the names in
// scheduler_config.json). Throws UsageError else.
BetaSchedule parse_beta_schedule(std::string_view name);

struct SigmaRange {
  double low = 0, high = 0;
};

struct NoiseScheduleArgs {
  BetaSchedule beta_schedule = BetaSchedule::kScaledLinear;
  double beta_start = 0.00085, beta_end = 0.012;  // Stable Diffusion 1, 2 and XL
  int train_steps = 1000;
  std::vector<double> trained_betas;  // replace the formula where not empty
  bool zero_terminal_snr = false;     // Lin et al., "Common Diffusion Noise Schedules", 2024, algorithm 1
  // The UNet is told log(sigma) / 4 in place of an index (Karras et al. 2022, table 1, c_noise: CosXL).
  bool log_sigma_timesteps = false;
  // EDM's models: no betas, any sigma of the range, log_sigma_timesteps. The table is train_steps sigmas,
  // uniform in log sigma.
  std::optional<SigmaRange> edm;
};

// x_t = sqrt(alpha_bar) * x_0 + sqrt(1 - alpha_bar) * noise; sigma = sqrt((1 - alpha_bar) / alpha_bar) is the
// noise of x_t / sqrt(alpha_bar), the variable of Karras et al. 2022.
class NoiseSchedule {
 public:
  // Values are rounded to f32 where PyTorch rounds them, so that sigmas equal Diffusers' bit for bit or
  // nearly. Throws UsageError for no or more than 100,000 steps, betas not finite or outside (0, 1), and an
  // EDM range that is not 0 < low < high.
  explicit NoiseSchedule(const NoiseScheduleArgs& args = {});

  int train_steps() const { return static_cast<int>(alphas_cumprod_.size()); }
  bool zero_terminal_snr() const { return zero_terminal_snr_; }
  bool log_sigma_timesteps() const { return log_sigma_timesteps_; }
  bool is_edm() const { return edm_; }

  // By index, which is the timestep unless log_sigma_timesteps(). With zero terminal SNR the last alpha_bar
  // is exactly 0, while sigmas() caps it at that of alpha_bar = 2^-24 (as Diffusers does) to stay finite.
  std::span<const double> alphas_cumprod() const { return alphas_cumprod_; }
  std::span<const double> sigmas() const { return sigmas_; }
  double sigma_min() const { return sigmas_.front(); }
  double sigma_max() const { return sigmas_.back(); }

  // sigma at a fractional timestep: log-linear between neighbours (k-diffusion); at a fractional index:
  // linear (Diffusers). Both are clamped to the table.
  double sigma(double timestep) const;
  double sigma_linear(double index) const;
  // The fractional timestep of a sigma, log-linear between neighbours, clamped to the table. A sigma of the
  // table, in float, gives its whole timestep; interpolated_timestep may miss that by a rounding, as
  // Diffusers does, which counts where the result is cut off.
  double timestep(double sigma) const;
  double interpolated_timestep(double sigma) const;
  // What the UNet is told at an entry of the table.
  double timestep_of_index(int index) const;

 private:
  void fill_edm(const NoiseScheduleArgs& args);

  bool zero_terminal_snr_ = false, log_sigma_timesteps_ = false, edm_ = false;
  std::vector<double> alphas_cumprod_, sigmas_, log_sigmas_;
};

}  // namespace rocm_sd
