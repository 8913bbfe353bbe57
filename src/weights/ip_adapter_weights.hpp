// Files of IP-Adapters: the adapter (h94's, one .safetensors with image_proj.* and ip_adapter.*), and the
// image encoder beside it (transformers' folder, or a single file).
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "weights/store.hpp"

namespace rocm_sd {

// Names as in the file, but for image_proj.latents, which becomes image_proj.latents.weight [tokens,C].
// Throws FileError, and FormatError for a file that holds no adapter (what it holds), and for tensors that no
// adapter has: among them the low-rank ones of FaceID, which are a LoRA.
WeightStore open_ip_adapter(const std::filesystem::path& path, FileAccess access = FileAccess::kRead);
WeightStore ip_adapter_of(const TensorSet& tensors);

struct ImageEncoderWeights {
  WeightStore store;                             // under transformers' names; class_embedding.weight [1,C]
  std::shared_ptr<const nlohmann::json> config;  // with the keys of CLIPVisionConfig
};
// path: a folder with config.json and weights, or a file, whose configuration is told from the shapes. Throws
// FileError and FormatError.
ImageEncoderWeights open_image_encoder(const std::filesystem::path& path, const std::string& variant = "",
                                       FileAccess access = FileAccess::kRead);
ImageEncoderWeights image_encoder_of(const TensorSet& tensors, std::shared_ptr<const nlohmann::json> config);

}  // namespace rocm_sd
