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

namespace rocm_sd {

// Nothing where the implementation takes the problem, else why not.
using Refusal = std::optional<std::string>;

template <class Problem>
struct Impl {
  const char* name;
  Refusal (*supports)(const Exec&, const Problem&);
  void (*run)(Exec&, const Problem&);
};

template <class Problem>
struct ImplList {
  const char* op;
  std::vector<Impl<Problem>> impls;
};

// The implementation that ROCM_SD_FORCE_IMPL="attention:ref,conv2d:onednn" or a live ForcedImpl names for
// this op, or "".
std::string forced_impl(std::string_view op);

// Forces one implementation of one op while alive, on this thread (tests).
class ForcedImpl {
 public:
  ForcedImpl(std::string op, std::string impl);
  ~ForcedImpl();
  ForcedImpl(const ForcedImpl&) = delete;
  ForcedImpl& operator=(const ForcedImpl&) = delete;
};

// One line per op, problem and choice under ROCM_SD_LOG=dispatch.
void log_choice(const char* op, const std::string& problem, const char* impl, const std::string& refusals);

// Problem must have `std::string describe() const`. Throws UsageError listing every refusal if nothing takes
// it, or if the forced implementation refuses or does not exist.
template <class Problem>
const Impl<Problem>& select(const Exec& ex, const ImplList<Problem>& list, const Problem& problem) {
  const std::string forced = forced_impl(list.op);
  std::string refusals;
  for (const Impl<Problem>& impl : list.impls) {
    if (!forced.empty() && forced != impl.name) continue;
    const Refusal refusal = impl.supports(ex, problem);
    if (!refusal) {
      log_choice(list.op, problem.describe(), impl.name, refusals);
      return impl;
    }
    refusals += concat(refusals.empty() ? "" : "; ", impl.name, ": ", *refusal);
  }
  if (refusals.empty()) refusals = concat("there is no implementation named '", forced, "'");
  throw UsageError(concat(list.op, " ", problem.describe(), ": no implementation takes it (", refusals, ")"));
}

template <class Problem>
Refusal supports_everything(const Exec&, const Problem&) {
  return std::nullopt;
}

}  // namespace rocm_sd
