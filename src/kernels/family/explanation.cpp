#include "kernels/family/explanation.hpp"

#include "base/error.hpp"

namespace rocm_sd {
namespace {

thread_local ExplanationRecord* innermost = nullptr;

}  // namespace

ExplanationRecord::ExplanationRecord() : outer_(innermost) { innermost = this; }
ExplanationRecord::~ExplanationRecord() { innermost = outer_; }
ExplanationRecord* ExplanationRecord::current() { return innermost; }

std::string to_text(const CostSource& source) {
  if (source.origin != "measured") return source.origin;
  return concat("measured on an ", source.device, ", driver ", source.driver, ", ", source.date, ", commit ",
                source.commit);
}

std::string source_text(const CostModel& model, const std::string& name) {
  const auto found = model.sources.find(name);
  return found == model.sources.end() ? std::string() : to_text(found->second);
}

}  // namespace rocm_sd
