// Names of schedules in A1111, ComfyUI, sd.cpp and Diffusers.
#include <array>

#include "base/error.hpp"
#include "schedulers/names.hpp"
#include "schedulers/schedule.hpp"

namespace rocm_sd {
namespace {

struct ScheduleName {
  ScheduleKind kind;
  std::string_view name, label;
  std::array<std::string_view, 5> aliases = {};
};

constexpr ScheduleName kNames[] = {
    {ScheduleKind::kNormal, "normal", "Uniform", {"discrete", "uniform", "default"}},
    {ScheduleKind::kKarras, "karras", "Karras", {"use_karras_sigmas"}},
    {ScheduleKind::kExponential, "exponential", "Exponential", {"use_exponential_sigmas"}},
    {ScheduleKind::kPolyexponential, "polyexponential", "Polyexponential"},
    {ScheduleKind::kSgmUniform, "sgm_uniform", "SGM Uniform"},
    {ScheduleKind::kSimple, "simple", "Simple"},
    {ScheduleKind::kDdimUniform, "ddim_uniform", "DDIM"},
    {ScheduleKind::kBeta, "beta", "Beta", {"use_beta_sigmas"}},
    {ScheduleKind::kBetaTimesteps, "beta_timesteps", "Beta Timesteps"},
    {ScheduleKind::kKlOptimal, "kl_optimal", "KL Optimal"},
    {ScheduleKind::kAlignYourSteps, "align_your_steps", "Align Your Steps", {"ays"}},
    {ScheduleKind::kLinearQuadratic, "linear_quadratic", "Linear Quadratic"},
    {ScheduleKind::kSmoothstep, "smoothstep", "Smoothstep"},
    {ScheduleKind::kDdim, "ddim_timesteps", "DDIM Timesteps"},
    {ScheduleKind::kLcm, "lcm", "LCM"},
    {ScheduleKind::kLinspace, "linspace", "Linspace"},
    {ScheduleKind::kLeading, "leading", "Leading"},
    {ScheduleKind::kTrailing, "trailing", "Trailing"},
    {ScheduleKind::kExplicit, "explicit", "Explicit"},
};

const ScheduleName& row(ScheduleKind kind) {
  for (const ScheduleName& name : kNames)
    if (name.kind == kind) return name;
  throw InternalError("schedule without a name");
}

}  // namespace

std::optional<ScheduleKind> parse_schedule(std::string_view name) {
  const std::string wanted = normalized_name(name);
  if (wanted.empty() || wanted == "automatic" || wanted == "auto") return std::nullopt;
  for (const ScheduleName& known : kNames) {
    if (known.kind == ScheduleKind::kExplicit) continue;  // a list of sigmas says so itself
    if (wanted == normalized_name(known.name) || wanted == normalized_name(known.label)) return known.kind;
    for (const std::string_view alias : known.aliases)
      if (!alias.empty() && wanted == normalized_name(alias)) return known.kind;
  }
  std::vector<std::string> known = schedule_names();
  known.insert(known.begin(), "automatic");
  throw_unknown_name("schedule", name, known);
}

std::string_view to_string(ScheduleKind kind) { return row(kind).name; }
std::string_view schedule_label(ScheduleKind kind) { return row(kind).label; }

std::vector<std::string> schedule_names() {
  std::vector<std::string> out;
  for (const ScheduleName& name : kNames)
    if (name.kind != ScheduleKind::kExplicit) out.emplace_back(name.name);
  return out;
}

}  // namespace rocm_sd
