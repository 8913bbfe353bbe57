#include "pipeline/kernel_choices.hpp"

#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"
#include "tuning/identity.hpp"

namespace rocm_sd {

void KernelChoices::add(const ChoiceRecord& record) {
  for (const ChoiceRecord::Choice& choice : record.choices())
    choices_[concat(choice.op, " ", choice.problem)] = choice.impl;
}

// FNV-1a.
std::string KernelChoices::hash() const {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    hash = (hash ^ 0xffu) * 0x100000001b3u;
  };
  for (const auto& [problem, impl] : choices_) {
    mix(problem);
    mix(impl);
  }
  return fmt::format("{:016x}", hash);
}

const std::string& KernelChoices::code(Device& device) {
  if (code_.empty()) code_ = tuning::identity_of(device).code;
  return code_;
}

}  // namespace rocm_sd
