// Choices by name, and what a thread chose before, by what the choice depends on. Making a choice goes over
// every configuration, which a caller of single ops, who plans nothing, would pay for in each call.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/gpu.hpp"

namespace rocm_sd {

// All that a choice of kernels may know of a GPU.
using GpuKey = std::tuple<std::string, GpuFamily, int, int, size_t, size_t, uint32_t, bool>;
inline GpuKey gpu_key(const GpuTraits& gpu) {
  return {gpu.arch,          gpu.family,   gpu.lanes,   gpu.compute_units,
          gpu.lds_per_group, gpu.l2_bytes, gpu.cluster, gpu.tma};
}

// For one thread (thread_local): it locks nothing.
template <class Key, class Value>
class ChoiceMemo {
 public:
  // The value of this key, by make() where there is none yet. The reference holds until the next call.
  template <class Make>
  const Value& of(const Key& key, const Make& make) {
    if (const auto found = values_.find(key); found != values_.end()) return found->second;
    if (values_.size() >= kMax) values_.clear();
    return values_.emplace(key, make()).first->second;
  }
  size_t size() const { return values_.size(); }

  static constexpr size_t kMax = 4096;

 private:
  std::map<Key, Value> values_;
};

// The choice that describe() names so, or nothing.
template <class Choice>
std::optional<Choice> choice_of(const std::vector<Choice>& choices, const std::string& name) {
  for (const Choice& choice : choices)
    if (describe(choice) == name) return choice;
  return std::nullopt;
}

// What describe() says of the first and of all others.
template <class Choice>
std::vector<std::string> names_of(const Choice& first, const std::vector<Choice>& choices) {
  std::vector<std::string> names = {describe(first)};
  for (const Choice& choice : choices)
    if (std::string name = describe(choice); name != names[0]) names.push_back(std::move(name));
  return names;
}

}  // namespace rocm_sd
