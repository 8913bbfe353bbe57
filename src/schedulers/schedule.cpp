// The noise levels that a sampler visits.
#include "schedulers/schedule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/error.hpp"
#include "schedulers/beta_quantile.hpp"

namespace rocm_sd {
namespace {

constexpr int kMaxSteps = 1000;

// i-th of `count` points from a to b, both included.
double point(double a, double b, int i, int count) {
  return count == 1 ? a : a + (b - a) * static_cast<double>(i) / (count - 1);
}

// sigma at position x in 0..1 from noisiest to cleanest, for the kinds that are a formula of sigma_max and
// sigma_min.
double formula_sigma(ScheduleKind kind, double x, double low, double high, const ScheduleArgs& args) {
  switch (kind) {
    case ScheduleKind::kKarras: {
      const double rho = args.rho > 0 ? args.rho : 7;
      const double from = std::pow(high, 1 / rho), to = std::pow(low, 1 / rho);
      return std::pow(from + x * (to - from), rho);
    }
    case ScheduleKind::kExponential: return std::exp(std::log(high) + x * (std::log(low) - std::log(high)));
    case ScheduleKind::kPolyexponential: {
      const double ramp = std::pow(1 - x, args.rho > 0 ? args.rho : 1);
      return std::exp(ramp * (std::log(high) - std::log(low)) + std::log(low));
    }
    case ScheduleKind::kBeta: return low + beta_quantile(1 - x, args.beta_a, args.beta_b) * (high - low);
    case ScheduleKind::kKlOptimal: return std::tan(x * std::atan(low) + (1 - x) * std::atan(high));
    default: throw InternalError("formula_sigma: not a formula");
  }
}

bool is_formula(ScheduleKind kind) {
  return kind == ScheduleKind::kKarras || kind == ScheduleKind::kExponential ||
         kind == ScheduleKind::kPolyexponential || kind == ScheduleKind::kBeta ||
         kind == ScheduleKind::kKlOptimal;
}

// Tables of Sabour et al., "Align Your Steps", 2024, as published for ten steps.
constexpr std::array<double, 11> kAlignedSd1 = {14.615, 6.475, 3.861, 2.697, 1.886, 1.396,
                                                0.963,  0.652, 0.399, 0.152, 0.029};
constexpr std::array<double, 11> kAlignedSdxl = {14.615, 6.315, 3.771, 2.181, 1.342, 0.862,
                                                 0.555,  0.380, 0.234, 0.113, 0.029};

double aligned_sigma(std::span<const double> table, double x) {
  const double at = x * static_cast<double>(table.size() - 1);
  const size_t low = std::min(static_cast<size_t>(at), table.size() - 2);
  const double w = at - static_cast<double>(low);
  return std::exp((1 - w) * std::log(table[low]) + w * std::log(table[low + 1]));
}

// 1 - i-th value of the linear, then quadratic ramp (Genmo's Mochi, as in ComfyUI): 0.025 of the way in the
// first half of the steps.
double linear_quadratic(int i, int steps) {
  constexpr double kThreshold = 0.025;
  if (steps == 1) return 1;
  const int linear = steps / 2, quadratic = steps - linear;
  if (i < linear) return 1 - i * kThreshold / linear;
  const double rest = linear - kThreshold * steps;
  const double square = rest / (static_cast<double>(linear) * quadratic * quadratic);
  const double slope = kThreshold / linear - 2 * rest / (static_cast<double>(quadratic) * quadratic);
  return 1 - (square * i * i + slope * i + square * linear * linear);
}

// sd.cpp's and ComfyUI's quantile schedule: repeated timesteps are dropped.
std::vector<int> beta_timesteps(int steps, int last, const ScheduleArgs& args) {
  std::vector<int> out;
  for (int i = 0; i < steps; ++i) {
    const double p = 1 - static_cast<double>(i) / steps;
    const int t = static_cast<int>(std::nearbyint(beta_quantile(p, args.beta_a, args.beta_b) * last));
    if (out.empty() || out.back() != t) out.push_back(t);
  }
  return out;
}

// np.arange(from, 0, -stride): its second value is rounded before it becomes the increment. Diffusers keeps a
// value above 0 that the count's own rounding may leave (61 steps of 1000: timestep -1); it is dropped here.
std::vector<double> descending_range(int from, double stride, int count) {
  const double increment = (from - stride) - from;
  std::vector<double> out;
  for (int i = 0; i < count && i * stride < from; ++i) out.push_back(from + i * increment);
  return out;
}

// Diffusers' timestep_spacing (Lin et al. 2024, table 2). last: the timesteps of 0..last - 1 are used.
std::vector<double> spaced_timesteps(const ScheduleArgs& args, int train, int last) {
  const int n = args.steps;
  const bool solver = args.grid == TimestepGrid::kSolver;
  std::vector<double> out;
  if (args.kind == ScheduleKind::kLinspace) {
    for (int i = 0; i < n; ++i) {
      const int count = solver ? n + 1 : n;
      // NumPy's linspace: step * index from 0 upwards.
      const double step = count == 1 ? 0 : static_cast<double>(last - 1) / (count - 1);
      const double t = i == 0 && count > 1 ? last - 1 : step * (count - 1 - i);
      out.push_back(args.grid == TimestepGrid::kFractional ? static_cast<float>(t) : std::nearbyint(t));
    }
  } else if (args.kind == ScheduleKind::kLeading) {
    const int stride = last / (solver ? n + 1 : n);
    for (int i = 0; i < n; ++i)
      out.push_back((solver ? n - i : n - 1 - i) * static_cast<double>(stride) + args.steps_offset);
  } else {
    for (const double t : descending_range(last, static_cast<double>(train) / n, n))
      out.push_back(std::nearbyint(t) - 1);
  }
  for (double& t : out) t = std::clamp(t, 0.0, static_cast<double>(train - 1));
  return out;
}

// Diffusers' lambda_min_clipped: how many timesteps are left.
int unclipped_timesteps(const NoiseSchedule& noise, double lambda_min) {
  const auto below =
      std::ranges::find_if(noise.sigmas(), [&](double s) { return -std::log(s) < lambda_min; });
  return static_cast<int>(below - noise.sigmas().begin());
}

// Diffusers' PNDM calls the UNet at these timesteps; levels are descending.
void add_pndm_calls(Schedule& schedule, PndmStart start, int stride) {
  std::vector<int> t;
  for (size_t i = 0; i + 1 < schedule.levels.size(); ++i)
    t.push_back(static_cast<int>(schedule.levels[i].timestep));
  if (start == PndmStart::kPlms) {
    if (t.size() > 1) t.insert(t.begin() + 1, t[1]);
    schedule.calls = std::move(t);
    return;
  }
  require<UsageError>(t.size() >= 4, "PNDM's Runge-Kutta start (skip_prk_steps false) needs 4 steps, not ",
                      t.size());
  std::vector<int> rk = {t[0]};
  for (size_t i = 1; i < 4; ++i) {
    const int middle = t[i] + stride / 2;
    rk.insert(rk.end(), {middle, middle, t[i]});
    if (i < 3) rk.push_back(t[i]);
  }
  schedule.runge_kutta_calls = rk;
  schedule.calls = std::move(rk);
  schedule.calls.insert(schedule.calls.end(), t.begin() + 3, t.end());
}

// LCM and TCD: a subset of the timesteps that the student was distilled on.
std::vector<int> distilled_timesteps(const ScheduleArgs& args, int train) {
  const int original = args.lcm_original_steps;
  require<UsageError>(original >= 1 && original <= train && args.steps <= original, "schedule lcm: steps (",
                      args.steps, ") must not exceed the ", original, " original steps, nor these the ",
                      train, " training steps");
  std::vector<int> out;
  for (int i = 0; i < args.steps; ++i) {
    const int index = static_cast<int>(static_cast<int64_t>(i) * original / args.steps);
    out.push_back((original - index) * (train / original) - 1);
  }
  return out;
}

class Builder {
 public:
  Builder(const NoiseSchedule& noise, const ScheduleArgs& args)
      : noise_(noise), args_(args), end_(args.last) {
    low_ = args.sigma_min > 0 ? args.sigma_min : noise.sigma_min();
    high_ = args.sigma_max > 0 ? args.sigma_max : noise.sigma_max();
    require<UsageError>(std::isfinite(low_) && std::isfinite(high_) && low_ < high_, "schedule: sigma_min (",
                        low_, ") must be below sigma_max (", high_, ")");
  }

  Schedule build() {
    const int n = args_.steps;
    const int last = noise_.train_steps() - 1;
    if (is_formula(args_.kind)) {
      for (int i = 0; i < n; ++i) add_sigma(formula_sigma(args_.kind, point(0, 1, i, n), low_, high_, args_));
      return finish();
    }
    switch (args_.kind) {
      case ScheduleKind::kNormal:
      case ScheduleKind::kSgmUniform: {
        const double from = noise_.timestep(high_), to = noise_.timestep(low_);
        const int count = args_.kind == ScheduleKind::kNormal ? n : n + 1;
        for (int i = 0; i < n; ++i) add_fractional(point(from, to, i, count));
        break;
      }
      case ScheduleKind::kSimple: {
        need_own_timesteps();
        const double stride = static_cast<double>(last + 1) / n;
        for (int i = 0; i < n; ++i) add_timestep(last - static_cast<int>(i * stride));
        break;
      }
      case ScheduleKind::kDdimUniform: {
        need_own_timesteps();
        const int stride = std::max((last + 1) / n, 1);
        for (int t = 1 + (last - 1) / stride * stride; t >= 1; t -= stride) add_timestep(t);
        break;
      }
      case ScheduleKind::kDdim: {
        need_own_timesteps();
        const int stride = (last + 1) / n;
        for (int t = last / stride * stride; t >= 0; t -= stride) add_timestep(std::min(t + 1, last));
        break;
      }
      case ScheduleKind::kBetaTimesteps:
        for (const int t : beta_timesteps(n, last, args_)) add_timestep(t);
        break;
      case ScheduleKind::kAlignYourSteps: {
        const std::span<const double> table = args_.sdxl ? kAlignedSdxl : kAlignedSd1;
        for (int i = 0; i < n; ++i) add_sigma(aligned_sigma(table, point(0, 1, i, n)));
        break;
      }
      case ScheduleKind::kLinearQuadratic:
        for (int i = 0; i < n; ++i) add_sigma(linear_quadratic(i, n) * high_);
        break;
      case ScheduleKind::kSmoothstep:
        for (int i = 0; i < n; ++i) {
          const double u = 1 - static_cast<double>(i) / n;
          add_timestep(static_cast<int>(std::round(u * u * (3 - 2 * u) * last)));
        }
        break;
      case ScheduleKind::kLcm:
        for (const int t : distilled_timesteps(args_, last + 1)) add_timestep(t);
        break;
      case ScheduleKind::kLinspace:
      case ScheduleKind::kLeading:
      case ScheduleKind::kTrailing: add_spaced(); break;
      case ScheduleKind::kExplicit: add_explicit(); break;
      default: throw InternalError("make_schedule: unknown kind");
    }
    return finish();
  }

 private:
  void need_own_timesteps() const {
    require<UsageError>(args_.steps <= noise_.train_steps(), "schedule ", to_string(args_.kind), ": ",
                        args_.steps, " steps, but the model was trained with ", noise_.train_steps(),
                        " timesteps");
  }

  // Schedules of nearly as many steps as there are timesteps may name one twice: a step that goes nowhere.
  void add(const NoiseLevel& level) {
    if (schedule_.levels.empty() || level.sigma < schedule_.levels.back().sigma)
      schedule_.levels.push_back(level);
  }
  // Sigmas are rounded to float as in every Python project, whose noise depends on them.
  void add_sigma(double sigma) {
    NoiseLevel level = level_of_sigma(noise_, static_cast<float>(sigma));
    if (noise_.log_sigma_timesteps()) return add(level);
    if (args_.rounding == TimestepRounding::kNearest) level.timestep = std::nearbyint(level.timestep);
    if (args_.rounding == TimestepRounding::kDown)
      level.timestep = std::floor(noise_.interpolated_timestep(sigma));
    add(level);
  }
  void add_timestep(int t) { add(level_of_timestep(noise_, t)); }
  void add_fractional(double exact) {
    if (noise_.log_sigma_timesteps()) return add_sigma(noise_.sigma(exact));
    const double t = static_cast<float>(exact);
    if (t == std::floor(t)) return add_timestep(static_cast<int>(t));
    NoiseLevel level = level_of_sigma(noise_, static_cast<float>(noise_.sigma(t)));
    level.timestep = t;
    add(level);
  }

  // The levels that Diffusers visits for timesteps that need not belong to their sigmas.
  void add_log_linear(const std::vector<double>& timesteps) {
    const double high = std::log(noise_.sigma_max()), low = std::log(noise_.sigma_min());
    const size_t count = timesteps.size() + 1;
    // Where the UNet is told sigmas, all count + 1 are steps and the configuration's end follows.
    const bool all = noise_.log_sigma_timesteps();
    for (size_t i = 0; i + (all ? 0 : 1) < count; ++i) {
      const double sigma = std::exp(point(high, low, static_cast<int>(i), static_cast<int>(count)));
      NoiseLevel level = level_of_sigma(noise_, static_cast<float>(sigma));
      if (!all) level.timestep = timesteps[i];
      add(level);
    }
    if (!all) end_ = LastLevel::kSigmaMin;
  }

  void add_spaced() {
    need_own_timesteps();
    const int train = noise_.train_steps();
    const bool solver = args_.grid == TimestepGrid::kSolver;
    const int last = solver ? unclipped_timesteps(noise_, args_.lambda_min) : train;
    require<UsageError>(last >= args_.steps, "schedule: lambda_min_clipped leaves ", last, " timesteps for ",
                        args_.steps, " steps");
    const std::vector<double> timesteps = spaced_timesteps(args_, train, last);
    if (args_.reshape) {
      // Karras and the like run over the spaced range; the solvers take the model's whole range.
      const bool whole = solver || args_.log_linear;
      const double high = whole || args_.sigma_max > 0 ? high_ : noise_.sigma_linear(timesteps.front());
      const double low = whole || args_.sigma_min > 0 ? low_ : noise_.sigma_linear(timesteps.back());
      for (int i = 0; i < args_.steps; ++i)
        add_sigma(formula_sigma(*args_.reshape, point(0, 1, i, args_.steps), low, high, args_));
      return;
    }
    if (args_.log_linear) return add_log_linear(timesteps);
    for (const double t : timesteps) {
      if (t == std::floor(t)) {
        add_timestep(static_cast<int>(t));
        continue;
      }
      NoiseLevel level = level_of_sigma(noise_, static_cast<float>(noise_.sigma_linear(t)));
      if (!noise_.log_sigma_timesteps()) level.timestep = t;
      add(level);
    }
    if (args_.grid == TimestepGrid::kRounded && !noise_.log_sigma_timesteps())
      schedule_.stride = noise_.train_steps() / args_.steps;
  }

  void add_explicit() {
    const std::vector<double>& sigmas = args_.sigmas;
    require<UsageError>(!sigmas.empty() && sigmas.size() <= kMaxSteps + 1 && sigmas.front() > 0,
                        "sigmas: expected 1..", kMaxSteps, " positive values, got ", sigmas.size());
    for (size_t i = 0; i < sigmas.size(); ++i) {
      require<UsageError>(std::isfinite(sigmas[i]) && sigmas[i] >= 0 && (i == 0 || sigmas[i] < sigmas[i - 1]),
                          "sigmas: value ", i, " (", sigmas[i],
                          ") must be finite, >= 0 and below the one before");
      if (sigmas[i] > 0) add_sigma(sigmas[i]);
    }
  }

  Schedule finish() {
    if (args_.discard_penultimate && schedule_.levels.size() > 1) schedule_.levels.pop_back();
    switch (end_) {
      case LastLevel::kZero: schedule_.levels.push_back({0, 1, 0}); break;
      case LastLevel::kSigmaMin: schedule_.levels.push_back(level_of_timestep(noise_, 0)); break;
      case LastLevel::kRepeatsLast: schedule_.levels.push_back(NoiseLevel(schedule_.levels.back())); break;
    }
    if (args_.pndm != PndmStart::kNone) add_pndm_calls(schedule_, args_.pndm, schedule_.stride);
    return std::move(schedule_);
  }

  const NoiseSchedule& noise_;
  const ScheduleArgs& args_;
  LastLevel end_;
  double low_ = 0, high_ = 0;
  Schedule schedule_;
};

}  // namespace

NoiseLevel level_of_sigma(const NoiseSchedule& noise, double sigma) {
  return {sigma, 1 / (1 + sigma * sigma), noise.timestep(sigma)};
}

NoiseLevel level_of_timestep(const NoiseSchedule& noise, int timestep) {
  const size_t t = static_cast<size_t>(std::clamp(timestep, 0, noise.train_steps() - 1));
  return {noise.sigmas()[t], noise.alphas_cumprod()[t], noise.timestep_of_index(static_cast<int>(t))};
}

std::vector<double> Schedule::sigmas() const {
  std::vector<double> out;
  for (const NoiseLevel& level : levels) out.push_back(level.sigma);
  return out;
}

Schedule make_schedule(const NoiseSchedule& noise, const ScheduleArgs& args) {
  require<UsageError>(args.steps >= 1 && args.steps <= kMaxSteps, "steps must be within 1..", kMaxSteps,
                      ", not ", args.steps);
  require<UsageError>(std::isfinite(args.rho) && args.rho >= 0 && args.beta_a > 0 && args.beta_b > 0 &&
                          args.beta_a < 100 && args.beta_b < 100,
                      "schedule: rho and the beta distribution's parameters must be positive");
  ScheduleArgs padded = args;
  if (args.discard_penultimate && args.kind != ScheduleKind::kExplicit && args.steps < kMaxSteps) {
    ++padded.steps;
  } else {
    padded.discard_penultimate = false;
  }
  return Builder(noise, padded).build();
}

Schedule truncate_for_strength(const NoiseSchedule& noise, const Schedule& schedule, double strength,
                               StrengthRule rule, int asked) {
  require<UsageError>(strength >= 0 && strength <= 1, "strength must be within 0..1, not ", strength);
  const int steps = asked > 0 ? asked : schedule.steps();
  const auto product = [&](double s) { return static_cast<int>(std::floor(steps * s)); };
  int kept = std::min(product(strength), steps);
  if (rule == StrengthRule::kA1111 && strength < 1)
    kept = std::min(product(std::min(strength, 0.999)) + 1, steps);
  const int dropped = steps - kept;
  require<UsageError>(kept >= 1 && dropped < schedule.steps(), "strength ", strength, " leaves none of the ",
                      schedule.steps(), " steps");
  return without_first(noise, schedule, dropped);
}

Schedule without_first(const NoiseSchedule& noise, const Schedule& schedule, int dropped) {
  Schedule out = schedule;
  if (schedule.calls.empty()) {
    out.levels.erase(out.levels.begin(), out.levels.begin() + dropped);
    return out;
  }
  out.calls.erase(out.calls.begin(), out.calls.begin() + dropped);
  const NoiseLevel end = out.levels.back();
  out.levels.clear();
  for (const int t : out.calls)
    if (out.levels.empty() || t < out.levels.back().timestep)
      out.levels.push_back(level_of_timestep(noise, t));
  out.levels.push_back(end);
  return out;
}

}  // namespace rocm_sd
