// A tiny model of SDXL's kind as a Diffusers folder: two text encoders, pooled text and sizes, deeper
// transformers at the coarse levels; random UNet and second encoder, the rest is the demo model's.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "models/clip.hpp"
#include "models/configs.hpp"
#include "models/unet.hpp"
#include "support/random_source.hpp"
#include "weights/safetensors.hpp"

namespace rocm_sd::testing_support {

inline void write_json(const std::filesystem::path& path, const nlohmann::json& json) {
  std::ofstream(path) << json.dump(1);
}

template <Visitable Model>
void write_random_weights(const std::filesystem::path& path, const Model& model) {
  std::vector<TensorToWrite> tensors;
  for (const ParameterSlot::Part& part : list_parameters(model)) {
    std::vector<float> values(static_cast<size_t>(part.shape.numel()));
    RandomSource().read(part.name, part.shape, DType::kF32, values.data());
    tensors.push_back(
        {part.name, DType::kF32, part.shape, [values](uint64_t offset, uint64_t bytes, void* to) {
           std::memcpy(to, reinterpret_cast<const char*>(values.data()) + offset, bytes);
         }});
  }
  write_safetensors(path, std::move(tensors), {});
}

// demo: the demo model's folder -> `folder`, made.
inline std::string write_random_sdxl(const std::filesystem::path& folder, const std::filesystem::path& demo) {
  namespace fs = std::filesystem;
  fs::create_directories(folder / "unet");
  fs::create_directories(folder / "text_encoder_2");
  for (const char* part : {"scheduler", "text_encoder", "tokenizer", "vae"})
    fs::copy(demo / part, folder / part, fs::copy_options::recursive);
  fs::copy(demo / "tokenizer", folder / "tokenizer_2", fs::copy_options::recursive);
  using nlohmann::json;
  json index = parse_json_file((demo / "model_index.json").string());
  index["_class_name"] = "StableDiffusionXLPipeline";
  index["text_encoder_2"] = {"transformers", "CLIPTextModelWithProjection"};
  index["tokenizer_2"] = {"transformers", "CLIPTokenizer"};
  write_json(folder / "model_index.json", index);

  json text = parse_json_file((demo / "text_encoder/config.json").string());
  const auto width = text["hidden_size"].get<int64_t>();
  text["architectures"] = {"CLIPTextModelWithProjection"};
  text["projection_dim"] = width;
  write_json(folder / "text_encoder_2/config.json", text);
  write_random_weights(folder / "text_encoder_2/model.safetensors",
                       ClipTextModel(clip_config(text, "text_encoder_2")));

  json unet = parse_json_file((demo / "unet/config.json").string());
  constexpr int64_t kIdWidth = 8, kIds = 6;
  unet["addition_embed_type"] = "text_time";
  unet["addition_time_embed_dim"] = kIdWidth;
  unet["projection_class_embeddings_input_dim"] = width + kIds * kIdWidth;
  unet["cross_attention_dim"] = 2 * width;
  unet["down_block_types"] = {"DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"};
  unet["up_block_types"] = {"CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"};
  unet["transformer_layers_per_block"] = {1, 2, 3};
  unet["use_linear_projection"] = true;
  write_json(folder / "unet/config.json", unet);
  write_random_weights(folder / "unet/diffusion_pytorch_model.safetensors", UNet(unet_config(unet, "unet")));
  return folder.string();
}

}  // namespace rocm_sd::testing_support
