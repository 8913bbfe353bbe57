// How an op picks its code: an ordered list of implementations, best first, each of which may refuse with a
// sentence.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "runtime/exec.hpp"
#include "tuning/choices.hpp"

namespace rocm_sd {

// Nothing where the implementation takes the problem, else why not.
using Refusal = std::optional<std::string>;

// The ways of an implementation that has several: what a tuner chooses from.
template <class Problem>
struct Configs {
  // Their names, the one that run() takes untuned first. Cheap: nothing is loaded.
  std::vector<std::string> (*names)(const Exec&, const Problem&);
  // Nothing where it can run: it is among names() and its kernels are there.
  Refusal (*supports)(const Exec&, const Problem&, const std::string& config);
  void (*run)(Exec&, const Problem&, const std::string& config);  // one that supports() takes
};

template <class Problem>
struct Impl {
  const char* name;
  Refusal (*supports)(const Exec&, const Problem&);
  void (*run)(Exec&, const Problem&);
  const Configs<Problem>* configs = nullptr;
};

template <class Problem>
struct ImplList {
  const char* op;
  std::vector<Impl<Problem>> impls;
};

// The choice that ROCM_SD_FORCE_IMPL="attention:ref,linear:gpu 128x128x64/2" or a live ForcedImpl names for
// this op, or "": an implementation, and after a blank one of its configurations.
std::string forced_impl(std::string_view op);

// Forces one choice of one op while alive, on this thread (tests, tuners).
class ForcedImpl {
 public:
  ForcedImpl(std::string op, std::string impl);
  ~ForcedImpl();
  ForcedImpl(const ForcedImpl&) = delete;
  ForcedImpl& operator=(const ForcedImpl&) = delete;
};

// One line per op, problem and choice under ROCM_SD_LOG=dispatch.
void log_choice(const char* op, const std::string& problem, const char* impl, const std::string& refusals);

// "gpu 128x128x64/2" -> "gpu" and "128x128x64/2".
struct ChoiceName {
  std::string impl, config;  // config: "" for the implementation's own choice
};
ChoiceName parse_choice(std::string_view choice);

// While alive, on this thread: select() lists what it could have chosen for problems of this op.
class CandidateRecord {
 public:
  explicit CandidateRecord(std::string op);
  ~CandidateRecord();
  CandidateRecord(const CandidateRecord&) = delete;
  CandidateRecord& operator=(const CandidateRecord&) = delete;

  // Of the last problem: choices as ForcedImpl takes them, the list's order, what is chosen untuned first.
  const std::vector<std::string>& candidates() const { return candidates_; }

  static CandidateRecord* of(std::string_view op);  // the innermost one for this op, or null
  void set(std::vector<std::string> candidates) { candidates_ = std::move(candidates); }

 private:
  std::string op_;
  std::vector<std::string> candidates_;
  CandidateRecord* outer_;
};

template <class Problem>
struct Selection {
  const Impl<Problem>* impl;
  std::string config;  // "" for the implementation's own choice

  void run(Exec& ex, const Problem& problem) const {
    config.empty() ? impl->run(ex, problem) : impl->configs->run(ex, problem, config);
  }
};

// Whether the implementation, in this configuration unless that is "", takes the problem.
template <class Problem>
Refusal refusal_of(const Exec& ex, const Impl<Problem>& impl, const Problem& problem,
                   const std::string& config) {
  if (Refusal refusal = impl.supports(ex, problem)) return refusal;
  if (config.empty()) return std::nullopt;
  if (!impl.configs) return "has no configurations";
  return impl.configs->supports(ex, problem, config);
}

template <class Problem>
std::vector<std::string> all_candidates(const Exec& ex, const ImplList<Problem>& list,
                                        const Problem& problem) {
  std::vector<std::string> out;
  for (const Impl<Problem>& impl : list.impls) {
    if (impl.supports(ex, problem)) continue;
    if (!impl.configs)
      out.emplace_back(impl.name);
    else
      for (const std::string& config : impl.configs->names(ex, problem))
        if (!impl.configs->supports(ex, problem, config)) out.push_back(concat(impl.name, " ", config));
  }
  return out;
}

// What a tuning table says, if it can be followed.
template <class Problem>
std::optional<Selection<Problem>> tuned_selection(const Exec& ex, const ImplList<Problem>& list,
                                                  const Problem& problem, const std::string& text) {
  const auto choice = tuning::tuned_choice(ex.device(), list.op, text);
  if (!choice) return std::nullopt;
  const ChoiceName name = parse_choice(*choice);
  Refusal refusal = "there is no such implementation";
  for (const Impl<Problem>& impl : list.impls)
    if (name.impl == impl.name) {
      refusal = refusal_of(ex, impl, problem, name.config);
      if (!refusal) return Selection<Problem>{&impl, name.config};
    }
  tuning::note_refused(list.op, text, *choice, *refusal);
  return std::nullopt;
}

// The forced choice if there is one, else a tuning table's if it can be followed, else the first of the list
// that takes the problem. Problem must have `std::string describe() const`. Throws UsageError listing every
// refusal if nothing takes it, or if the forced implementation refuses or does not exist.
template <class Problem>
Selection<Problem> select(const Exec& ex, const ImplList<Problem>& list, const Problem& problem) {
  const ChoiceName forced = parse_choice(forced_impl(list.op));
  const std::string text = problem.describe();
  if (CandidateRecord* record = CandidateRecord::of(list.op)) record->set(all_candidates(ex, list, problem));
  if (forced.impl.empty())
    if (const auto tuned = tuned_selection(ex, list, problem, text)) {
      log_choice(list.op, text,
                 concat(tuned->impl->name, tuned->config.empty() ? "" : " ", tuned->config).c_str(), "tuned");
      return *tuned;
    }
  std::string refusals;
  for (const Impl<Problem>& impl : list.impls) {
    if (!forced.impl.empty() && forced.impl != impl.name) continue;
    const Refusal refusal = refusal_of(ex, impl, problem, forced.config);
    if (!refusal) {
      log_choice(list.op, text, impl.name, refusals);
      return {&impl, forced.config};
    }
    refusals += concat(refusals.empty() ? "" : "; ", impl.name, ": ", *refusal);
  }
  if (refusals.empty()) refusals = concat("there is no implementation named '", forced.impl, "'");
  throw UsageError(concat(list.op, " ", text, ": no implementation takes it (", refusals, ")"));
}

template <class Problem>
Refusal supports_everything(const Exec&, const Problem&) {
  return std::nullopt;
}

}  // namespace rocm_sd
