// The noise schedule that a model was trained with. Arithmetic is in float wherever PyTorch's is, so that the
// sigmas are those of Diffusers.
#include "schedulers/noise_schedule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>

#include "base/error.hpp"
#include "schedulers/names.hpp"

namespace rocm_sd {
namespace {

constexpr int kMaxTrainSteps = 100'000;

// torch.linspace in float: counted from the nearer end.
std::vector<float> linspace(float start, float end, int count) {
  std::vector<float> out(static_cast<size_t>(count), start);
  if (count == 1) return out;
  const float step = (end - start) / static_cast<float>(count - 1);
  for (int i = 0; i < count; ++i)
    out[static_cast<size_t>(i)] =
        i < count / 2 ? start + step * static_cast<float>(i) : end - step * static_cast<float>(count - 1 - i);
  return out;
}

// Nichol and Dhariwal, "Improved Denoising Diffusion Probabilistic Models", 2021, equation 17.
double cosine_alpha_bar(double t) {
  const double c = std::cos((t + 0.008) / 1.008 * std::numbers::pi / 2);
  return c * c;
}

// Diffusers' betas_for_alpha_bar: "laplace" and "exp".
double laplace_alpha_bar(double t) {
  const double half = 0.5 - t;
  const double lambda = -0.5 * std::copysign(1.0, half) * std::log(1 - 2 * std::fabs(half) + 1e-6);
  const double snr = std::exp(lambda);
  return std::sqrt(snr / (1 + snr));
}
double exponential_alpha_bar(double t) { return std::exp(t * -12.0); }

std::vector<float> betas_of_alpha_bar(double (*alpha_bar)(double), int n) {
  std::vector<float> betas;
  for (int i = 0; i < n; ++i) {
    const double ratio = alpha_bar((i + 1.0) / n) / alpha_bar(static_cast<double>(i) / n);
    betas.push_back(static_cast<float>(std::min(1 - ratio, 0.999)));
  }
  return betas;
}

std::vector<float> make_betas(const NoiseScheduleArgs& args) {
  if (!args.trained_betas.empty()) return {args.trained_betas.begin(), args.trained_betas.end()};
  const int n = args.train_steps;
  switch (args.beta_schedule) {
    case BetaSchedule::kLinear:
      return linspace(static_cast<float>(args.beta_start), static_cast<float>(args.beta_end), n);
    case BetaSchedule::kScaledLinear: {
      std::vector<float> betas = linspace(static_cast<float>(std::sqrt(args.beta_start)),
                                          static_cast<float>(std::sqrt(args.beta_end)), n);
      for (float& b : betas) b *= b;
      return betas;
    }
    case BetaSchedule::kSquaredCosine: return betas_of_alpha_bar(cosine_alpha_bar, n);
    case BetaSchedule::kLaplace: return betas_of_alpha_bar(laplace_alpha_bar, n);
    case BetaSchedule::kExponential: return betas_of_alpha_bar(exponential_alpha_bar, n);
    case BetaSchedule::kSigmoid: {
      std::vector<float> betas = linspace(-6, 6, n);
      const float start = static_cast<float>(args.beta_start);
      const float range = static_cast<float>(args.beta_end - args.beta_start);
      for (float& b : betas) b = 1 / (1 + std::exp(-b)) * range + start;
      return betas;
    }
  }
  throw InternalError("make_betas: unknown schedule");
}

// Lin et al. 2024, algorithm 1: sqrt(alpha_bar) shifted and scaled so that its last value is 0.
void rescale_to_zero_terminal_snr(std::vector<float>& betas) {
  std::vector<float> root(betas.size());
  double product = 1;
  for (size_t i = 0; i < betas.size(); ++i) {
    product *= 1.0f - betas[i];
    root[i] = std::sqrt(static_cast<float>(product));
  }
  const float first = root.front(), last = root.back();
  float previous = 1;
  for (size_t i = 0; i < betas.size(); ++i) {
    const float scaled = (root[i] - last) * (first / (first - last));
    const float alpha_bar = scaled * scaled;
    betas[i] = 1.0f - (i == 0 ? alpha_bar : alpha_bar / previous);
    previous = alpha_bar;
  }
}

}  // namespace

BetaSchedule parse_beta_schedule(std::string_view name) {
  const std::string wanted = normalized_name(name);
  if (wanted == "linear") return BetaSchedule::kLinear;
  if (wanted == "scaledlinear") return BetaSchedule::kScaledLinear;
  if (wanted == "squaredcoscapv2") return BetaSchedule::kSquaredCosine;
  if (wanted == "sigmoid") return BetaSchedule::kSigmoid;
  if (wanted == "laplace") return BetaSchedule::kLaplace;
  if (wanted == "exp") return BetaSchedule::kExponential;
  const std::array<std::string, 6> known = {"linear",  "scaled_linear", "squaredcos_cap_v2",
                                            "sigmoid", "laplace",       "exp"};
  throw_unknown_name("beta schedule", name, known);
}

void NoiseSchedule::fill_edm(const NoiseScheduleArgs& args) {
  const auto [low, high] = *args.edm;
  require<UsageError>(std::isfinite(high) && low > 0 && low < high,
                      "noise schedule: expected 0 < sigma_min < ", "sigma_max, got ", low, " and ", high);
  for (int i = 0; i < args.train_steps; ++i) {
    const double w = args.train_steps == 1 ? 1 : static_cast<double>(i) / (args.train_steps - 1);
    const double sigma = std::exp((1 - w) * std::log(low) + w * std::log(high));
    sigmas_.push_back(static_cast<float>(sigma));
    log_sigmas_.push_back(std::log(sigma));
    alphas_cumprod_.push_back(1 / (1 + sigma * sigma));
  }
}

NoiseSchedule::NoiseSchedule(const NoiseScheduleArgs& args)
    : zero_terminal_snr_(args.zero_terminal_snr),
      log_sigma_timesteps_(args.log_sigma_timesteps || args.edm),
      edm_(args.edm.has_value()) {
  const size_t steps = args.trained_betas.empty() ? static_cast<size_t>(std::max(args.train_steps, 0))
                                                  : args.trained_betas.size();
  require<UsageError>(
      steps >= 1 && steps <= kMaxTrainSteps, "noise schedule: training steps must be 1..", kMaxTrainSteps,
      ", not ",
      args.trained_betas.empty() ? static_cast<int64_t>(args.train_steps) : static_cast<int64_t>(steps));
  if (edm_) {
    fill_edm(args);
    return;
  }
  const auto check = [](double beta, std::string_view what) {
    require<UsageError>(beta > 0 && beta < 1, "noise schedule: ", what, " must lie between 0 and 1, not ",
                        beta);
  };
  if (args.trained_betas.empty()) {
    check(args.beta_start, "beta_start");
    check(args.beta_end, "beta_end");
  }
  for (const double beta : args.trained_betas) check(beta, "every trained beta");

  std::vector<float> betas = make_betas(args);
  require<UsageError>(!zero_terminal_snr_ || steps > 1,
                      "noise schedule: zero terminal SNR needs more than one training step");
  if (zero_terminal_snr_) rescale_to_zero_terminal_snr(betas);
  double product = 1;
  for (const float beta : betas) {
    product *= 1.0f - beta;
    const float alpha_bar = static_cast<float>(product);
    alphas_cumprod_.push_back(alpha_bar);
    const float capped = std::max(alpha_bar, zero_terminal_snr_ ? 0x1p-24f : 0.0f);
    const float sigma = std::sqrt((1.0f - capped) / capped);
    require<UsageError>(std::isfinite(sigma) && (sigmas_.empty() || sigma > sigmas_.back()) && sigma > 0,
                        "noise schedule: sigma does not grow at timestep ", sigmas_.size(),
                        "; the betas are too small or too large");
    sigmas_.push_back(sigma);
    log_sigmas_.push_back(std::log(sigma));  // a float
  }
}

double NoiseSchedule::sigma(double timestep) const {
  if (log_sigma_timesteps_) return std::clamp(std::exp(4 * timestep), sigma_min(), sigma_max());
  const double t = std::clamp(timestep, 0.0, static_cast<double>(train_steps() - 1));
  const size_t low = static_cast<size_t>(t);
  if (low + 1 >= sigmas_.size()) return sigmas_.back();
  const double w = t - static_cast<double>(low);
  if (w == 0) return sigmas_[low];
  return std::exp((1 - w) * log_sigmas_[low] + w * log_sigmas_[low + 1]);
}

double NoiseSchedule::sigma_linear(double index) const {
  const double t = std::clamp(index, 0.0, static_cast<double>(train_steps() - 1));
  const size_t low = static_cast<size_t>(t);
  if (low + 1 >= sigmas_.size()) return sigmas_.back();
  return sigmas_[low] + (t - static_cast<double>(low)) * (sigmas_[low + 1] - sigmas_[low]);
}

double NoiseSchedule::timestep_of_index(int index) const {
  return log_sigma_timesteps_ ? timestep(sigmas_[static_cast<size_t>(index)]) : index;
}

double NoiseSchedule::timestep(double sigma) const {
  if (log_sigma_timesteps_) return 0.25 * std::log(std::max(sigma, 1e-10));
  const auto at = std::ranges::lower_bound(sigmas_, static_cast<double>(static_cast<float>(sigma)));
  if (at == sigmas_.end()) return train_steps() - 1;
  if (*at == static_cast<float>(sigma) || at == sigmas_.begin())
    return static_cast<double>(at - sigmas_.begin());
  return interpolated_timestep(sigma);
}

double NoiseSchedule::interpolated_timestep(double sigma) const {
  if (train_steps() == 1) return 0;
  const double log_sigma = std::log(std::max(sigma, 1e-10));
  const auto above = std::ranges::upper_bound(log_sigmas_, log_sigma) - log_sigmas_.begin();
  const size_t low = static_cast<size_t>(std::clamp<int64_t>(above - 1, 0, train_steps() - 2));
  const double w =
      std::clamp((log_sigmas_[low] - log_sigma) / (log_sigmas_[low] - log_sigmas_[low + 1]), 0.0, 1.0);
  return (1 - w) * static_cast<double>(low) + w * static_cast<double>(low + 1);
}

}  // namespace rocm_sd
