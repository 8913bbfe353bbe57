// What a Checkpoint consists of: filled by checkpoint_open.cpp, read by checkpoint.cpp.
#pragma once

#include "weights/checkpoint.hpp"
#include "weights/component_loader.hpp"

namespace rocm_sd {

struct Checkpoint::Parts {
  std::filesystem::path path;
  bool folder = false;
  ModelKind kind = ModelKind::kSd1;
  Prediction prediction = Prediction::kEpsilon;
  std::string prediction_source = "default";
  bool zero_terminal_snr = false;
  std::map<Component, LoadedComponent> components;
  std::map<Component, std::filesystem::path> tokenizers;
  std::optional<nlohmann::json> scheduler, index;
  Metadata metadata;
  ComponentLoader loader;

  const WeightStore* find(Component component) const {
    const auto it = components.find(component);
    return it == components.end() ? nullptr : &it->second.store;
  }
};

}  // namespace rocm_sd
