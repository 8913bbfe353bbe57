#include "measurement/explain.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "kernels/choice_record.hpp"
#include "kernels/family/explanation.hpp"
#include "measurement/runner.hpp"

namespace rocm_sd::measurement {
namespace {

constexpr size_t kShown = 20;  // candidates of an implementation

std::string text_of(const Explanation& e, const std::string& chosen) {
  std::string text = fmt::format("{} on {}, estimates in {}:\n", e.impl, e.family, e.unit);
  std::vector<ExplainedCandidate> ranked = e.candidates;
  std::ranges::stable_sort(ranked, {}, [](const ExplainedCandidate& c) { return std::pair(c.rank, c.cost); });
  const auto taken = std::ranges::find_if(
      ranked, [&](const ExplainedCandidate& c) { return e.impl + " " + c.choice == chosen; });
  if (taken != ranked.end()) {
    text += fmt::format("  row: {}, rank {}: {}\n", taken->algorithm, taken->rank, taken->reason);
    if (!taken->source.empty()) text += fmt::format("  costs: {}\n", taken->source);
  }
  for (size_t i = 0; i < std::min(ranked.size(), kShown); ++i)
    text += fmt::format("  {} {:<44} {:<20} rank {}  {:>14.0f}\n",
                        taken == ranked.begin() + static_cast<std::ptrdiff_t>(i) ? '*' : ' ',
                        ranked[i].choice, ranked[i].algorithm, ranked[i].rank, ranked[i].cost);
  if (ranked.size() > kShown) text += fmt::format("    and {} more\n", ranked.size() - kShown);
  for (const std::string& refusal : e.refused) text += fmt::format("  not {}\n", refusal);
  return text;
}

}  // namespace

std::string explain(Device& device, const Workload& workload) {
  require<UsageError>(device.kind() != DeviceKind::kHost,
                      "bench --explain: expected a GPU, of which there is a map");
  const Inputs inputs(device, workload);
  const ExplanationRecord explanations;
  const ChoiceRecord choices;
  const std::vector<std::string> names = candidates_of(device, workload, inputs);
  require<UsageError>(!names.empty(), "bench --explain: nothing takes ", workload.op, " ", workload.text);
  std::string text = fmt::format("{} {}\ntakes {} untuned\n", workload.op, workload.text, names[0]);
  for (const std::string& line : choices.lines()) text += fmt::format("dispatch: {}\n", line);
  for (const Explanation& e : explanations.explanations()) text += text_of(e, names[0]);
  return text;
}

}  // namespace rocm_sd::measurement
