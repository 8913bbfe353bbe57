// Names and shapes of the tensors of known models, as their files have them: no values, so that a test can
// open thousands of variants in seconds.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/clip.hpp"
#include "models/unet.hpp"
#include "models/vae.hpp"
#include "weights/checkpoint.hpp"
#include "weights/ldm_export.hpp"

namespace rocm_sd {

struct ModelKey {
  std::string name;
  Shape shape;
  DType dtype = DType::kF16;
};
using ModelKeys = std::vector<ModelKey>;

// A file of these tensors that lies in memory; all share one buffer of zeros, which is as long as what
// opening reads.
inline std::shared_ptr<const SafetensorsFile> file_of_keys(const ModelKeys& keys) {
  static const std::vector<char> zeros(1 << 16);
  std::vector<MemoryTensor> tensors;
  for (const ModelKey& key : keys) tensors.push_back({key.name, key.dtype, key.shape, zeros.data()});
  return SafetensorsFile::of_memory("model.safetensors", tensors);
}

// Every parameter of a model under another name; `rename` gives nothing for what the layout leaves out.
template <class Model>
void add_keys(ModelKeys& keys, const Model& model, const std::string& prefix,
              const std::function<std::optional<std::string>(const std::string&)>& rename) {
  for (const ParameterSlot::Part& part : list_parameters(model))
    if (const auto name = rename(part.name)) keys.push_back({prefix + *name, part.shape});
}

inline void add_ldm_unet(ModelKeys& keys, const UNetConfig& config) {
  const UNet unet(config);
  std::set<std::string> all;
  for (const ParameterSlot::Part& part : list_parameters(unet)) all.insert(part.name);
  const LdmUnetExport names([&](const std::string& name) { return all.contains(name); });
  add_keys(keys, unet, "model.diffusion_model.",
           [&](const std::string& name) { return names.ldm_name(name); });
}

inline void add_ldm_vae(ModelKeys& keys, const VaeConfig& config) {
  const auto rename = [&](const std::string& name) {
    return ldm_vae_name(name, static_cast<int>(config.channels.size()));
  };
  add_keys(keys, VaeDecoder(config), "first_stage_model.", rename);
  add_keys(keys, VaeEncoder(config), "first_stage_model.", rename);
}

inline void add_transformers_text(ModelKeys& keys, const ClipConfig& config, const std::string& prefix) {
  add_keys(keys, ClipTextModel(config), prefix, [](const std::string& name) { return std::optional(name); });
  keys.push_back({prefix + "text_model.embeddings.position_ids", {1, 77}, DType::kI64});
}

// q, k and v are packed, and the projection is transposed.
inline void add_open_clip_text(ModelKeys& keys, const ClipConfig& config, const std::string& prefix) {
  for (const ParameterSlot::Part& part : list_parameters(ClipTextModel(config))) {
    if (part.name.find(".k_proj.") != part.name.npos || part.name.find(".v_proj.") != part.name.npos)
      continue;
    const auto name = open_clip_name(part.name);
    Shape shape = part.shape;
    if (part.name.find(".q_proj.") != part.name.npos) shape[0] *= 3;
    if (name == "text_projection") shape = {shape[1], shape[0]};
    keys.push_back({prefix + *name, shape});
  }
  keys.push_back({prefix + "logit_scale", Shape{}});
}

// What training leaves in single files beside the model.
inline void add_leftovers(ModelKeys& keys) {
  for (const char* name : {"alphas_cumprod", "betas", "model_ema.decay", "posterior_variance"})
    keys.push_back({name, {1000}, DType::kF32});
  keys.push_back({"model_ema.num_updates", Shape{}, DType::kI32});
}

inline ModelKeys sd1_keys() {
  ModelKeys keys;
  add_ldm_unet(keys, configs::unet_sd1());
  add_ldm_vae(keys, configs::vae_sd());
  add_transformers_text(keys, configs::clip_l(), "cond_stage_model.transformer.");
  add_leftovers(keys);
  return keys;
}

// With the layer and the projection that SD 2 does not run.
inline ModelKeys sd2_keys(int layers = 24) {
  ModelKeys keys;
  add_ldm_unet(keys, configs::unet_sd2());
  add_ldm_vae(keys, configs::vae_sd());
  ClipConfig text = configs::openclip_h();
  text.layers = layers;
  text.projection = text.width;
  add_open_clip_text(keys, text, "cond_stage_model.model.");
  add_leftovers(keys);
  return keys;
}

// depths: of the transformers of the two coarser levels; SDXL has 2 and 10.
inline ModelKeys sdxl_keys(int finer = 2, int coarser = 10) {
  ModelKeys keys;
  UNetConfig unet = configs::unet_sdxl();
  for (UNetBlockConfig* block : {&unet.down[1], &unet.up[1]})
    for (int& depth : block->transformer_layers) depth = finer;
  for (UNetBlockConfig* block : {&unet.down[2], &unet.up[0]})
    for (int& depth : block->transformer_layers) depth = coarser;
  unet.mid->transformer_layers = {coarser};
  add_ldm_unet(keys, unet);
  add_ldm_vae(keys, configs::vae_sdxl());
  add_transformers_text(keys, configs::clip_l(), "conditioner.embedders.0.transformer.");
  add_open_clip_text(keys, configs::openclip_bigg(), "conditioner.embedders.1.model.");
  return keys;
}

}  // namespace rocm_sd
