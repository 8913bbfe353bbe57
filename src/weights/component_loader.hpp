// Opening one component from wherever it lies, and what is kept of it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "weights/layout.hpp"

namespace rocm_sd {

struct LoadedComponent {
  WeightStore store;
  NameStyle style = NameStyle::kDiffusers;
  std::optional<nlohmann::json> config;  // nothing: to be derived
  bool config_is_derived = false;
  std::string prefix = {};  // of its names in the file: "model.diffusion_model."
  std::vector<std::string> unknown =
      {};  // tensors below the prefix that no known structure has, by file name
};

// Whether a component's folder must have its config.json, or the structure may be told from the tensors.
enum class ConfigJson { kRequired, kOptional };

struct ComponentLoader {
  std::string variant;
  FileAccess access = FileAccess::kRead;
  LiveComponents live;  // take the place of weight files in a component's folder
  std::vector<std::string> notes;
  KeyReport keys;  // of the files opened: unexpected and harmless names

  // One component of an opened file. Configurations that `convert` left in the metadata are read.
  LoadedComponent take(const TensorSet& tensors, Component component, std::span<const LayoutPart> parts);

  // A component's Diffusers folder: config.json and weights. Where the file's own parts name another
  // component (TAESD in vae/) that one is returned. Throws FormatError where a configuration is asked for and
  // there is none of that component's.
  LoadedComponent open_folder(const std::filesystem::path& folder, Component component,
                              ConfigJson config = ConfigJson::kRequired);

  // Any path that a user gives for a component. Throws FormatError where it does not hold that component.
  LoadedComponent open_any(const std::filesystem::path& path, Component component);
  // The component wherever it stands in these tensors; TAESD where the VAE is asked for and only that is
  // there. Throws FormatError where it is missing.
  LoadedComponent take_wanted(const TensorSet& tensors, Component component);
};

// Metadata keys under which convert keeps what a single file cannot say in tensors.
std::string config_metadata_key(Component component);  // "rocm_sd.config.unet"
inline constexpr const char* kSchedulerMetadataKey = "rocm_sd.config.scheduler";

}  // namespace rocm_sd
