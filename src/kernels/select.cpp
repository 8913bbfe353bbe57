#include "kernels/select.hpp"

#include <cstdlib>
#include <mutex>
#include <set>

#include "base/log.hpp"
#include "kernels/choice_record.hpp"
#include "kernels/epilogue.hpp"

namespace rocm_sd {
namespace {

using Choice = std::pair<std::string, std::string>;  // op, implementation

thread_local std::vector<Choice> forced_choices;
thread_local ChoiceRecord* innermost_record = nullptr;
thread_local CandidateRecord* innermost_candidates = nullptr;

const std::vector<Choice>& choices_from_environment() {
  static const std::vector<Choice> choices = [] {
    std::vector<Choice> out;
    const char* env = std::getenv("ROCM_SD_FORCE_IMPL");
    std::string_view rest = env ? env : "";
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      const std::string_view item = rest.substr(0, comma);
      if (const size_t colon = item.find(':'); colon != std::string_view::npos)
        out.emplace_back(item.substr(0, colon), item.substr(colon + 1));
      rest = rest.substr(std::min(comma + 1, rest.size()));
    }
    return out;
  }();
  return choices;
}

}  // namespace

std::string forced_impl(std::string_view op) {
  for (auto it = forced_choices.rbegin(); it != forced_choices.rend(); ++it)
    if (it->first == op) return it->second;
  for (const Choice& c : choices_from_environment())
    if (c.first == op) return c.second;
  return "";
}

ForcedImpl::ForcedImpl(std::string op, std::string impl) {
  forced_choices.emplace_back(std::move(op), std::move(impl));
}
ForcedImpl::~ForcedImpl() { forced_choices.pop_back(); }

ChoiceRecord::ChoiceRecord() : outer_(innermost_record) { innermost_record = this; }
ChoiceRecord::~ChoiceRecord() { innermost_record = outer_; }

ChoiceName parse_choice(std::string_view choice) {
  const size_t blank = choice.find(' ');
  if (blank == std::string_view::npos) return {std::string(choice), ""};
  return {std::string(choice.substr(0, blank)), std::string(choice.substr(blank + 1))};
}

CandidateRecord::CandidateRecord(std::string op) : op_(std::move(op)), outer_(innermost_candidates) {
  innermost_candidates = this;
}
CandidateRecord::~CandidateRecord() { innermost_candidates = outer_; }
CandidateRecord* CandidateRecord::of(std::string_view op) {
  for (CandidateRecord* record = innermost_candidates; record; record = record->outer_)
    if (record->op_ == op) return record;
  return nullptr;
}

void log_choice(const char* op, const std::string& problem, const char* impl, const std::string& refusals) {
  static const bool enabled = log_topic("dispatch");
  if (!enabled && !innermost_record) return;
  const std::string line =
      concat(op, " ", problem, " -> ", impl, refusals.empty() ? "" : concat(" (", refusals, ")"));
  for (ChoiceRecord* record = innermost_record; record; record = record->outer_) {
    record->lines_.push_back(line);
    record->choices_.push_back({op, problem, impl});
  }
  if (!enabled) return;
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard lock(mutex);
  if (seen.insert(line).second) log().info("dispatch: {}", line);
}

std::string_view activation_name(Activation act) {
  switch (act) {
    case Activation::kNone: return "none";
    case Activation::kSilu: return "silu";
    case Activation::kGelu: return "gelu";
    case Activation::kQuickGelu: return "quick_gelu";
    case Activation::kRelu: return "relu";
  }
  return "?";
}

}  // namespace rocm_sd
