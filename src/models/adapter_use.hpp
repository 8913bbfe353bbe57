// An adapter at work.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weights/adapter.hpp"

namespace rocm_sd {

// An adapter at work and how strongly: weight + strength * change. One model's part (UNet, text encoder).
struct AdapterUse {
  std::shared_ptr<const AdapterFile> file;
  double strength = 1;
  BlockWeights blocks = {};  // factors of it
  friend bool operator==(const AdapterUse&, const AdapterUse&) = default;

  double strength_of(const AdapterModule& module) const { return strength * blocks.of(module.block); }
  // Its change to a tensor of the component; null: none.
  const AdapterModule* module(Component component, const std::string& tensor) const {
    const auto& modules = file->modules(component);
    const auto found = modules.find(tensor);
    return found == modules.end() || strength_of(found->second) == 0 ? nullptr : &found->second;
  }
};

// Whether any of them changes this tensor of the component.
inline bool any_changes(const std::vector<AdapterUse>& uses, Component component, const std::string& tensor) {
  for (const AdapterUse& use : uses)
    if (use.module(component, tensor)) return true;
  return false;
}

}  // namespace rocm_sd
