// From names and numbers to the levels that a sampler will visit.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "schedulers/names.hpp"
#include "schedulers/sampler.hpp"

namespace rocm_sd {
namespace {

// A sampler's name may end in a schedule's, as A1111's did before 1.9 ("DPM++ 2M SDE Karras",
// "k_dpmpp_2m_ka").
std::pair<const SamplerRow*, std::optional<ScheduleKind>> split_name(const std::string& name) {
  const std::string wanted = normalized_name(name);
  std::vector<std::pair<std::string, std::string>> suffixes = {{"ka", "karras"}, {"exp", "exponential"}};
  for (const std::string& schedule : schedule_names())
    suffixes.emplace_back(normalized_name(schedule), schedule);
  for (const auto& [suffix, schedule] : suffixes) {
    if (wanted.size() <= suffix.size() || !wanted.ends_with(suffix)) continue;
    const std::string head = wanted.substr(0, wanted.size() - suffix.size());
    for (const SamplerRow& row : samplers()) {
      std::vector<std::string_view> names = row.aliases;
      names.push_back(row.name);
      names.push_back(row.label);
      if (std::ranges::any_of(names, [&](std::string_view n) { return normalized_name(n) == head; }))
        return {&row, parse_schedule(schedule)};
    }
  }
  return {nullptr, std::nullopt};
}

std::pair<const SamplerRow*, std::optional<ScheduleKind>> resolve(const std::string& name) {
  const auto combined = split_name(name);
  try {
    return {&find_sampler(name), std::nullopt};  // a name of its own goes first: "ddim_trailing"
  } catch (const UsageError&) {
    if (combined.first) return combined;
    throw;
  }
}

void check_number(double value, double low, double high, std::string_view what) {
  require<UsageError>(value >= low && value <= high, what, " must be within ", low, "..", high, ", not ",
                      value);
}

SamplerOptions fill_options(const SamplerRow& row, const SamplerOptions& given) {
  SamplerOptions options = given;
  options.eta = given.eta.value_or(row.eta);
  options.order = given.order.value_or(row.order);
  options.solver = given.solver.value_or(row.solver);
  options.step_noise = given.step_noise.value_or(row.step_noise);
  options.lower_order_final = given.lower_order_final.value_or(row.lower_order_final);
  // Above 1 the variance-preserving samplers would need noise of negative variance.
  check_number(*options.eta, 0, row.space == LatentSpace::kVariancePreserving ? 1 : 100, "eta");
  check_number(options.s_churn, 0, 1e6, "s_churn");
  check_number(options.s_noise, 0, 100, "s_noise");
  require<UsageError>(options.s_tmin >= 0 && options.s_tmax >= options.s_tmin,
                      "s_tmin and s_tmax must satisfy 0 <= s_tmin <= s_tmax, not ", options.s_tmin, " and ",
                      options.s_tmax);
  require<UsageError>(*options.order >= 1 && *options.order <= row.max_order, "sampler ", row.label,
                      ": order must be within 1..", row.max_order, ", not ", *options.order);
  return options;
}

bool is_spacing(ScheduleKind kind) {
  return kind == ScheduleKind::kLinspace || kind == ScheduleKind::kLeading || kind == ScheduleKind::kTrailing;
}
bool made_of_timesteps(ScheduleKind kind) {
  return is_spacing(kind) || kind == ScheduleKind::kDdim || kind == ScheduleKind::kDdimUniform;
}

}  // namespace

void set_schedule(SamplingRequest& request, const std::string& name) {
  const std::optional<ScheduleKind> kind = parse_schedule(name);
  if (!kind) return;
  ScheduleArgs& args = request.schedule_args;
  if (!request.schedule_is_set || !is_spacing(*kind)) {
    args = {};
    request.schedule = name;
    request.schedule_is_set = false;
    return;
  }
  if (args.grid == TimestepGrid::kFractional && is_spacing(args.kind))
    request.start_scale =
        *kind == ScheduleKind::kLeading ? StartScale::kVariancePreserving : StartScale::kSigma;
  args.kind = *kind;
}

SamplingPlan plan_sampling(const NoiseSchedule& noise, const SamplingRequest& request) {
  const auto [row, suffix] = resolve(request.sampler);
  require<UsageError>(
      !noise.log_sigma_timesteps() || !row->needs_timesteps, "sampler ", row->label,
      " works on the timesteps 0..", noise.train_steps() - 1,
      " of training; this model is told log(sigma) / 4 in their place: take Euler or DPM++ 2M");
  SamplingPlan plan;
  plan.sampler = row;
  plan.options = fill_options(*row, request.options);

  ScheduleArgs args = request.schedule_args;
  args.steps = request.steps;
  args.discard_penultimate = false;
  if (!request.schedule_is_set) {
    const std::optional<ScheduleKind> named = parse_schedule(request.schedule);
    args.kind = named ? *named : suffix.value_or(row->schedule);
    args.discard_penultimate = row->discard_penultimate;
    if (row->end_at_sigma_min && made_of_timesteps(args.kind)) args.last = LastLevel::kSigmaMin;
    if (row->space == LatentSpace::kVariancePreserving) args.grid = TimestepGrid::kRounded;
    if (args.kind == ScheduleKind::kLeading && !named && args.steps_offset == 0) args.steps_offset = 1;
  }
  if (!request.sigmas.empty()) {
    args = ScheduleArgs{.kind = ScheduleKind::kExplicit, .steps = 1, .sigmas = request.sigmas};
  }
  plan.schedule_kind = args.kind;
  plan.schedule = make_schedule(noise, args);
  const std::vector<NoiseLevel>& levels = plan.schedule.levels;
  plan.full_sigma_max = levels.front().sigma;
  plan.full_sigma_min = levels.back().sigma > 0 ? levels.back().sigma : levels[levels.size() - 2].sigma;
  // Where the sampler lands by timesteps of its own, the stride says so; other samplers go to the next level.
  if (row->name != "ddim" && row->name != "ddim_trailing" && row->name != "plms") plan.schedule.stride = 0;
  if (row->name != "plms") plan.schedule.calls.clear();
  const int steps = plan.schedule.steps();
  plan.schedule =
      truncate_for_strength(noise, plan.schedule, request.strength, request.strength_rule,
                            request.schedule_is_set && request.sigmas.empty() ? request.steps : 0);
  if (request.kept_steps > 0)
    plan.schedule =
        without_first(noise, plan.schedule, std::max(plan.schedule.steps() - request.kept_steps, 0));
  plan.skipped_steps = steps - plan.schedule.steps();

  if (row->space == LatentSpace::kVarianceExploding) {
    const double first = plan.schedule.levels.front().sigma, last = plan.schedule.levels.back().sigma;
    plan.start_factor = request.start_scale == StartScale::kSigma ? first : std::sqrt(first * first + 1);
    if (request.finish_preserving) plan.finish_factor = 1 / std::sqrt(last * last + 1);
  }
  return plan;
}

int SamplingPlan::unet_calls() const {
  return schedule.calls.empty() ? sampler->unet_calls(schedule.steps())
                                : static_cast<int>(schedule.calls.size());
}

}  // namespace rocm_sd
