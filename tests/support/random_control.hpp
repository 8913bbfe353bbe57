// A random ControlNet for a model, as a file; its last convolutions are small, so that pictures stay
// pictures. And a ControlNet-LoRA.
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

inline TensorToWrite random_to_write(const std::string& name, const std::string& stored, const Shape& shape,
                                     float scale) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  RandomSource().read(name, shape, DType::kF32, values.data());
  for (float& value : values) value *= scale;
  return {stored, DType::kF32, shape, [values](uint64_t offset, uint64_t bytes, void* to) {
            std::memcpy(to, reinterpret_cast<const char*>(values.data()) + offset, bytes);
          }};
}

// model: a Diffusers folder. scale: of the last convolutions.
inline std::string write_random_control(const std::filesystem::path& path, const std::string& model,
                                        float scale) {
  ControlNetConfig config;
  config.trunk = unet_config(parse_json_file(model + "/unet/config.json"), "config.json");
  config.trunk.up.clear();
  std::vector<TensorToWrite> tensors;
  for (const ParameterSlot::Part& part : list_parameters(ControlNet(config))) {
    const bool last = part.name.starts_with("controlnet_down") || part.name.starts_with("controlnet_mid");
    tensors.push_back(random_to_write(part.name, part.name, part.shape, last ? scale : 1.0f));
  }
  write_safetensors(path, std::move(tensors), {});
  return path.string();
}

// As Stability's files: the hint encoder and the last convolutions, and low-rank changes of the model's first
// convolution and of its first residual block.
inline std::string write_random_control_lora(const std::filesystem::path& path, const std::string& model,
                                             float scale) {
  constexpr int64_t kRank = 3;
  const std::string kHint = "controlnet_cond_embedding.", kDown = "controlnet_down_blocks.",
                    kMiddle = "controlnet_mid_block.";
  ControlNetConfig config;
  config.trunk = unet_config(parse_json_file(model + "/unet/config.json"), "config.json");
  config.trunk.up.clear();
  const size_t blocks = 2 * (config.hint_widths.size() - 1);  // between the first convolution and the last
  const auto leaf = [](const std::string& name) { return name.substr(name.rfind('.')); };
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const std::string& name, const std::string& stored, const Shape& shape, float factor) {
    tensors.push_back(random_to_write(name, stored, shape, factor));
  };
  add("mark", "lora_controlnet", {1}, 1);
  for (const ParameterSlot::Part& part : list_parameters(ControlNet(config))) {
    const std::string& name = part.name;
    if (name.starts_with(kDown)) {
      const std::string number = name.substr(kDown.size(), name.find('.', kDown.size()) - kDown.size());
      add(name, "zero_convs." + number + ".0" + leaf(name), part.shape, scale);
    } else if (name.starts_with(kMiddle)) {
      add(name, "middle_block_out.0" + leaf(name), part.shape, scale);
    } else if (name.starts_with(kHint)) {
      const std::string own = name.substr(kHint.size());
      const size_t number = own.starts_with("conv_in")    ? 0
                            : own.starts_with("conv_out") ? 2 * blocks + 2
                                                          : 2 * std::stoul(own.substr(own.find('.') + 1)) + 2;
      add(name, "input_hint_block." + std::to_string(number) + leaf(name), part.shape, 1);
    } else if (name == "conv_in.weight" || name == "down_blocks.0.resnets.0.conv1.weight") {
      const std::string stem =
          name == "conv_in.weight" ? "input_blocks.0.0." : "input_blocks.1.0.in_layers.2.";
      add(name + ".up", stem + "up", {part.shape[0], kRank, 1, 1}, 0.3f);
      add(name + ".down", stem + "down", {kRank, part.shape[1], part.shape[2], part.shape[3]}, 1);
    }
  }
  write_safetensors(path, std::move(tensors), {});
  return path.string();
}

}  // namespace rocm_sd::testing_support
