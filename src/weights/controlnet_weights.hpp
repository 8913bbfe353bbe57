// A ControlNet's file: Diffusers' folder or single file (union ControlNets, too), an LDM single file
// (control_model.*), or a ControlNet-LoRA (Stability's control-lora), under Diffusers' names.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "weights/store.hpp"

namespace rocm_sd {

struct ControlNetWeights {
  WeightStore store;                             // titled "controlnet of NAME"
  std::shared_ptr<const nlohmann::json> config;  // with the keys of ControlNetModel's config.json
  bool config_is_derived = false;                // from the shapes, and from the UNet's configuration
  // ControlNet-LoRA: what the store has not is the UNet's, and "x.up" times "x.down" is added to "x.weight".
  bool low_rank = false;
};

// The UNet that is to be steered, for what a file without a config.json does not say: heads, norm groups.
struct SteeredUnet {
  const nlohmann::json& config;  // with the keys of UNet2DConditionModel's config.json
  ModelKind kind = ModelKind::kSd1;
};

// path: a folder with config.json and weights, or a file. variant: as in CheckpointOptions. Throws FileError,
// and FormatError for a file that holds no ControlNet (what it holds instead), that has numbered blocks
// missing, or names that no ControlNet has.
ControlNetWeights open_controlnet(const std::filesystem::path& path, const SteeredUnet& unet,
                                  const std::string& variant = "", FileAccess access = FileAccess::kRead);
// Of tensors that are open already, which have no config.json.
ControlNetWeights controlnet_of(const TensorSet& tensors, const SteeredUnet& unet);

// Whether a file holds a ControlNet that open_controlnet reads.
bool holds_controlnet(const TensorSet& tensors);

}  // namespace rocm_sd
