#include "measurement/explain.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/format.hpp"
#include "kernels/choice_record.hpp"
#include "measurement/runner.hpp"

namespace rocm_sd::measurement {
namespace {

constexpr size_t kShown = 20;  // candidates of an implementation, as text

bool is_chosen(const Explained& explained, const Explanation& e, const ExplainedCandidate& c) {
  return concat(e.impl, " ", c.choice) == explained.chosen;
}

std::string text_of(const Explained& explained, const Explanation& e) {
  std::string text = fmt::format("{} on {}, estimates in {}:\n", e.impl, e.family, e.unit);
  for (const ExplainedCandidate& c : e.candidates)
    if (is_chosen(explained, e, c))
      text += fmt::format("  row: {}, rank {}: {}\n  costs: {}\n", c.algorithm, c.rank, c.reason,
                          c.source.empty() ? "none, it is the only one of its rank" : c.source);
  for (size_t i = 0; i < std::min(e.candidates.size(), kShown); ++i) {
    const ExplainedCandidate& c = e.candidates[i];
    text += fmt::format("  {} {:<44} {:<20} rank {} {:>16.0f}\n", is_chosen(explained, e, c) ? '*' : ' ',
                        c.choice, c.algorithm, c.rank, c.cost);
  }
  if (e.candidates.size() > kShown) text += fmt::format("    and {} more\n", e.candidates.size() - kShown);
  for (const std::string& refusal : e.refused) text += fmt::format("  not {}\n", refusal);
  return text;
}

}  // namespace

Explained explain(Device& device, const Workload& workload) {
  require<UsageError>(device.kind() != DeviceKind::kHost,
                      "bench --explain: expected a GPU, the host has no map of kernels");
  const Inputs inputs(device, workload);
  const ExplanationRecord explanations;
  const ChoiceRecord choices;
  const std::vector<std::string> names = candidates_of(device, workload, inputs);
  require<UsageError>(!names.empty(), "bench --explain: nothing takes ", workload.op, " ", workload.text);
  Explained out{workload.op, workload.text, names[0], choices.lines(), explanations.explanations()};
  for (Explanation& e : out.implementations)
    std::ranges::stable_sort(e.candidates, {},
                             [](const ExplainedCandidate& c) { return std::pair(c.rank, c.cost); });
  return out;
}

std::string explained_text(const Explained& explained) {
  std::string text =
      fmt::format("{} {}\ntakes {} untuned\n", explained.op, explained.problem, explained.chosen);
  for (const std::string& line : explained.dispatch) text += fmt::format("dispatch: {}\n", line);
  for (const Explanation& e : explained.implementations) text += text_of(explained, e);
  return text;
}

nlohmann::ordered_json explained_json(const Explained& explained) {
  nlohmann::ordered_json out = {{"op", explained.op},
                                {"problem", explained.problem},
                                {"chosen", explained.chosen},
                                {"dispatch", explained.dispatch},
                                {"implementations", nlohmann::ordered_json::array()}};
  for (const Explanation& e : explained.implementations) {
    nlohmann::ordered_json impl = {{"impl", e.impl},
                                   {"family", e.family},
                                   {"unit", e.unit},
                                   {"candidates", nlohmann::ordered_json::array()},
                                   {"refused", e.refused}};
    for (const ExplainedCandidate& c : e.candidates)
      impl["candidates"].push_back({{"choice", c.choice},
                                    {"algorithm", c.algorithm},
                                    {"rank", c.rank},
                                    {"cost", c.cost},
                                    {"cost_name", c.cost_name},
                                    {"reason", c.reason},
                                    {"source", c.source}});
    out["implementations"].push_back(std::move(impl));
  }
  return out;
}

}  // namespace rocm_sd::measurement
