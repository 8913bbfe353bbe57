// A random ControlNet for a model, as a file; its last convolutions are small, so that pictures stay
// pictures.
#pragma once

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "models/controlnet.hpp"
#include "support/random_source.hpp"
#include "weights/safetensors.hpp"

namespace rocm_sd::testing_support {

// model: a Diffusers folder. scale: of the last convolutions.
inline std::string write_random_control(const std::filesystem::path& path, const std::string& model,
                                        float scale) {
  ControlNetConfig config;
  config.trunk = unet_config(parse_json_file(model + "/unet/config.json"), "config.json");
  config.trunk.up.clear();
  std::vector<TensorToWrite> tensors;
  for (const ParameterSlot::Part& part : list_parameters(ControlNet(config))) {
    const bool last = part.name.starts_with("controlnet_down") || part.name.starts_with("controlnet_mid");
    std::vector<float> values(static_cast<size_t>(part.shape.numel()));
    RandomSource().read(part.name, part.shape, DType::kF32, values.data());
    for (float& value : values) value *= last ? scale : 1.0f;
    tensors.push_back(
        {part.name, DType::kF32, part.shape, [values](uint64_t offset, uint64_t bytes, void* to) {
           std::memcpy(to, reinterpret_cast<const char*>(values.data()) + offset, bytes);
         }});
  }
  write_safetensors(path, std::move(tensors), {});
  return path.string();
}

}  // namespace rocm_sd::testing_support
