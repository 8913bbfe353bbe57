// A random IP-Adapter for a model with its image encoder, as files in the published form.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "models/ip_adapter.hpp"
#include "support/random_source.hpp"
#include "weights/safetensors.hpp"

namespace rocm_sd::testing_support {

inline void write_random(const std::filesystem::path& path, const std::vector<ParameterSlot::Part>& parts) {
  std::vector<TensorToWrite> tensors;
  for (const ParameterSlot::Part& part : parts) {
    std::vector<float> values(static_cast<size_t>(part.shape.numel()));
    RandomSource().read(part.name, part.shape, DType::kF32, values.data());
    std::string name = part.name;
    Shape shape = part.shape;
    if (name == "image_proj.latents.weight") name = "image_proj.latents", shape = {1, shape[0], shape[1]};
    if (name.ends_with("class_embedding.weight")) {
      name.resize(name.size() - std::strlen(".weight"));
      shape = {shape[1]};
    }
    tensors.push_back({name, DType::kF32, shape, [values](uint64_t offset, uint64_t bytes, void* to) {
                         std::memcpy(to, reinterpret_cast<const char*>(values.data()) + offset, bytes);
                       }});
  }
  write_safetensors(path, std::move(tensors), {});
}

// model: a Diffusers folder. Writes folder/ip.safetensors and folder/image_encoder -> the first's path.
inline std::string write_random_ip_adapter(const std::filesystem::path& folder, const std::string& model,
                                           ImageProjectionKind kind) {
  const ClipVisionConfig vision{.width = 64,
                                .heads = 2,
                                .mlp_width = 128,
                                .layers = 3,
                                .image_size = 32,
                                .patch_size = 8,
                                .projection = 48};
  const UNet unet(unet_config(parse_json_file(model + "/unet/config.json"), "config.json"));
  IpAdapterConfig config;
  config.projection = {.kind = kind,
                       .in_width = kind == ImageProjectionKind::kLinear ? vision.projection : vision.width,
                       .context_width = unet.config().context_width(),
                       .tokens = kind == ImageProjectionKind::kFeedForward ? 1 : 4,
                       .hidden = 64,
                       .heads = 1,
                       .head_dim = 64,
                       .mlp_width = 128,
                       .layers = 2};
  std::filesystem::create_directories(folder / "image_encoder");
  const std::filesystem::path path = folder / "ip.safetensors";
  write_random(path, list_parameters(IpAdapter(config, unet.image_attentions())));
  write_random(folder / "image_encoder/model.safetensors", list_parameters(ClipVisionModel(vision)));
  std::ofstream(folder / "image_encoder/config.json")
      << nlohmann::json{{"hidden_size", vision.width},           {"num_attention_heads", vision.heads},
                        {"intermediate_size", vision.mlp_width}, {"num_hidden_layers", vision.layers},
                        {"image_size", vision.image_size},       {"patch_size", vision.patch_size},
                        {"projection_dim", vision.projection},   {"hidden_act", "gelu"}};
  return path.string();
}

}  // namespace rocm_sd::testing_support
