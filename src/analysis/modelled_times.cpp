#include "analysis/modelled_times.hpp"

#include <cctype>
#include <nlohmann/json.hpp>

#include "analysis/modelled_time.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/paths.hpp"

namespace rocm_sd {
namespace {

// "RX 7900 XTX" -> "rx-7900-xtx".
std::string file_name(std::string_view card) {
  std::string out;
  for (const char c : card) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u))
      out += static_cast<char>(std::tolower(u));
    else if (!out.empty() && out.back() != '-')
      out += '-';
  }
  return out;
}

}  // namespace

ModelledTimes read_modelled_times(const std::filesystem::path& path) {
  const nlohmann::json json = parse_json_file(path);
  const std::string what = printable(path.string());
  const auto text = [&](const char* name) {
    require<FormatError>(json.is_object() && json.contains(name) && json[name].is_string(), what, ": \"",
                         name, "\" must be a text");
    return json[name].get<std::string>();
  };
  ModelledTimes out{.card = text("card"), .target = text("target")};
  require<FormatError>(json.contains("error") && json["error"].is_number() && json["error"] >= 0, what,
                       ": \"error\" must be a number from 0");
  out.error = json["error"].get<double>();
  require<FormatError>(json.contains("microseconds") && json["microseconds"].is_object(), what,
                       ": \"microseconds\" must be an object");
  for (const auto& [problem, value] : json["microseconds"].items()) {
    require<FormatError>(value.is_number() && value > 0, what, ": ", printable(problem),
                         ": expected a number above 0");
    out.microseconds[problem] = value.get<double>();
  }
  return out;
}

std::optional<ModelledTimes> modelled_times_for(const GpuProduct& gpu) {
  for (const std::filesystem::path& folder : share_folders()) {
    const std::filesystem::path path = folder / "times" / (file_name(gpu.name) + ".json");
    std::error_code none;
    if (!std::filesystem::exists(path, none)) continue;
    ModelledTimes out = read_modelled_times(path);
    if (out.card == gpu.name) return out;
  }
  return std::nullopt;
}

std::string chosen_as(const std::string& op) { return op == "linear_geglu" ? "linear" : op; }

// Whether share/times has the op's problems; what others take is their bound and their launches.
static bool is_played(std::string_view op) { return op == "attention" || op == "conv2d" || op == "linear"; }

std::map<std::string, double> modelled_by_op(const PlannedStage& stage, const StageBound& bound,
                                             const ModelledTimes& times) {
  constexpr double kLeastKnown = 0.9;  // of the bound's time of ops that are played
  struct Calls {
    double known = 0, all = 0;
  };
  std::map<std::string, Calls> calls;  // by op
  std::map<std::string, double> out;
  for (const PlannedChoice& c : stage.choices) {
    const auto found = times.microseconds.find(concat(c.op, " ", c.problem));
    Calls& of = calls[c.op];
    of.all += c.count;
    if (found == times.microseconds.end()) continue;
    of.known += c.count;
    out[c.op] += c.count * found->second * 1e-3;
  }
  double known = 0, asked = 0;
  for (const OpBound& op : bound.ops) {
    const auto of = calls.find(chosen_as(op.op));
    const double share = of == calls.end() ? 0 : of->second.known / of->second.all;
    if (is_played(chosen_as(op.op))) {
      known += share * op.bound_ms;
      asked += op.bound_ms;
    }
    out[chosen_as(op.op)] += (1 - share) * (op.bound_ms + op.launches * kLaunchSeconds * 1e3);
  }
  if (known == 0 || known < kLeastKnown * asked) out.clear();
  return out;
}

}  // namespace rocm_sd
