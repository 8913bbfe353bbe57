#include "weights/controlnet_weights.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/format.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "weights/derive_unet.hpp"
#include "weights/diffusers_folder.hpp"
#include "weights/layout.hpp"
#include "weights/name_extent.hpp"

namespace rocm_sd {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kLdmPrefix = "control_model.", kLdmHint = "input_hint_block.",
                           kHint = "controlnet_cond_embedding.";
constexpr size_t kNamed = 8;

bool any_begins(const TensorSet& tensors, std::string_view head) {
  return std::ranges::any_of(tensors.tensors(),
                             [&](const TensorRef& ref) { return ref.entry->name.starts_with(head); });
}

// Where the ControlNet's names begin, and whether they are LDM's. Nothing where there is none.
struct Place {
  std::string_view prefix;
  bool ldm = false;
};
std::optional<Place> place_of(const TensorSet& tensors) {
  if (any_begins(tensors, concat(kLdmPrefix, kLdmHint))) return Place{kLdmPrefix, true};
  if (any_begins(tensors, kHint)) return Place{"", false};
  if (any_begins(tensors, kLdmHint)) return Place{"", true};
  return std::nullopt;
}

// The mark of Stability's ControlNet-LoRAs.
constexpr std::string_view kLowRankMark = "lora_controlnet";

bool is_low_rank(const TensorSet& tensors) {
  return tensors.find(kLowRankMark) != nullptr && any_begins(tensors, kLdmHint);
}

// What union ControlNets name without a module, under the names of layers.
std::string as_layer(std::string_view name) {
  constexpr std::string_view kPacked = ".attn.in_proj_";
  if (name == "task_embedding") return "task_embedding.weight";
  const size_t at = name.find(kPacked);
  if (at == name.npos || !name.starts_with("transformer_layes.")) return std::string(name);
  return concat(name.substr(0, at), ".attn.in_proj.", name.substr(at + kPacked.size()));
}

// LDM's names: the trunk's are a UNet's; the hint encoder counts its activations, too.
class LdmControlNames {
 public:
  explicit LdmControlNames(std::span<const NamedTensor> tensors) : trunk_(tensors) {
    for (const NamedTensor& tensor : tensors)
      if (const auto layer = numbered(tensor.name, kLdmHint))
        last_hint_ = std::max(last_hint_, layer->number);
  }
  const std::vector<std::string>& gaps() const { return trunk_.gaps(); }
  std::optional<std::string> canonical(std::string_view name) const {
    if (const auto zero = numbered(name, "zero_convs."); zero && zero->rest.starts_with("0."))
      return fmt::format("controlnet_down_blocks.{}.{}", zero->number, zero->rest.substr(2));
    constexpr std::string_view kMiddle = "middle_block_out.0.";
    if (name.starts_with(kMiddle)) return concat("controlnet_mid_block.", name.substr(kMiddle.size()));
    const auto hint = numbered(name, kLdmHint);
    if (!hint) return trunk_.canonical(name);
    if (hint->number % 2 != 0) return std::nullopt;
    if (hint->number == 0) return concat(kHint, "conv_in.", hint->rest);
    if (hint->number == last_hint_) return concat(kHint, "conv_out.", hint->rest);
    return fmt::format("{}blocks.{}.{}", kHint, hint->number / 2 - 1, hint->rest);
  }

 private:
  LdmUnetNames trunk_;
  int last_hint_ = 0;
};

WeightStore store_of(const TensorSet& tensors) {
  const std::string what = printable_path(tensors.path());
  const auto place = place_of(tensors);
  const std::string foreign = place ? "" : describe_foreign(tensors);
  require<FormatError>(place.has_value(), what, ": expected a ControlNet (controlnet_cond_embedding.* or ",
                       "control_model.input_hint_block.*), found ", foreign.empty() ? "none" : foreign);
  std::vector<NamedTensor> named;
  for (const TensorRef& ref : tensors.tensors())
    if (ref.entry->name.starts_with(place->prefix))
      named.push_back({std::string_view(ref.entry->name).substr(place->prefix.size()), ref});
  std::optional<LdmControlNames> ldm;
  if (place->ldm) ldm.emplace(named);
  if (ldm)
    require<FormatError>(ldm->gaps().empty(), what, ": no tensor of ", listed_names(ldm->gaps(), kNamed),
                         ", though blocks of higher numbers are there");
  WeightMap weights;
  std::vector<std::string> unknown;
  for (const NamedTensor& tensor : named) {
    const auto name = ldm ? ldm->canonical(tensor.name) : as_layer(tensor.name);
    if (tensor.name == kLowRankMark) continue;
    if (!name) {
      if (!is_harmless_leftover(tensor.name)) unknown.push_back(tensor.ref.entry->name);
      continue;
    }
    const bool is_new =
        weights.emplace(*name, StoredTensor{.ref = tensor.ref, .shape = tensor.ref.entry->shape}).second;
    require<FormatError>(is_new, what, ": two tensors claim to be ", *name);
  }
  require<FormatError>(unknown.empty(), what, ": ", unknown.size(),
                       unknown.size() == 1 ? " tensor has" : " tensors have",
                       " no place in a ControlNet: ", listed_names(unknown, kNamed));
  return {Component::kUnet, concat("controlnet of ", what), tensors.files(), std::move(weights)};
}

std::vector<int64_t> hint_widths(const WeightStore& store) {
  const auto width = [&](const std::string& layer) {
    return dim_of(store, {concat(kHint, layer, ".weight"), concat(kHint, layer, ".bias")}, 0, 0);
  };
  std::vector<int64_t> out = {width("conv_in")};
  const int blocks = extent(store, concat(kHint, "blocks."));
  for (int i = 1; i < std::min(blocks, 64); i += 2) out.push_back(width(concat("blocks.", i)));
  for (const int64_t channels : out)
    require<FormatError>(channels > 0, store.title(), ": tensors of ", kHint, " are missing");
  return out;
}

// What shapes do not say a ControlNet has from the UNet that it is a copy of.
void copy_from_unet(const json& unet, json& config) {
  const auto same = [&](const char* key) {
    const auto a = unet.find(key);
    const auto b = config.find(key);
    return a != unet.end() && b != config.end() && *a == *b;
  };
  if (!same("block_out_channels")) return;
  config.erase("attention_head_dim");  // without it: Diffusers' default, as the UNet has it
  for (const char* key : {"attention_head_dim", "num_attention_heads", "norm_num_groups", "norm_eps",
                          "flip_sin_to_cos", "freq_shift", "only_cross_attention"})
    if (const auto field = unet.find(key); field != unet.end()) config[key] = *field;
  if (same("projection_class_embeddings_input_dim"))
    config["addition_time_embed_dim"] = unet.at("addition_time_embed_dim");
}

// What a union ControlNet's transformer is.
void derive_mixer(const WeightStore& store, json& config) {
  if (!store.has("task_embedding.weight")) return;
  const int64_t types = dim_of(store, {"task_embedding.weight"}, 0, 0),
                width = dim_of(store, {"control_add_embedding.linear_1.weight"}, 1, 0);
  require<FormatError>(types > 0 && width > 0 && width % types == 0, store.title(),
                       ": expected control_add_embedding.linear_1.weight [C,", types, " n], found ", width,
                       " inputs");
  config["_class_name"] = "ControlNetUnionModel";
  config["num_control_type"] = types;
  config["num_trans_channel"] = config["num_proj_channel"] = dim_of(store, {"task_embedding.weight"}, 1, 0);
  config["num_trans_layer"] = std::min(extent(store, "transformer_layes."), 64);
  config["addition_time_embed_dim"] = width / types;
}

// Of a ControlNet-LoRA: the UNet's own, but for its way up.
json of_unet(const WeightStore& store, const SteeredUnet& unet) {
  json config = unet.config;
  for (const char* key : {"up_block_types", "out_channels", "reverse_transformer_layers_per_block",
                          "time_cond_proj_dim", "_name_or_path"})
    config.erase(key);
  config["_class_name"] = "ControlNetModel";
  config["conditioning_embedding_out_channels"] = hint_widths(store);
  return config;
}

json derived(const WeightStore& store, const SteeredUnet& unet) {
  json config = derive_unet(store, {.kind = unet.kind, .pooled_width = 1280});
  for (const char* key : {"up_block_types", "out_channels", "reverse_transformer_layers_per_block"})
    config.erase(key);
  config["_class_name"] = "ControlNetModel";
  config["conditioning_embedding_out_channels"] = hint_widths(store);
  if (!has_any(store, "mid_block.attentions.") && unet.config.contains("mid_block_type"))
    config["mid_block_type"] = unet.config.at("mid_block_type");
  copy_from_unet(unet.config, config);
  derive_mixer(store, config);
  return config;
}

// config.json beside the weights where it is a ControlNet's.
std::shared_ptr<const json> config_beside(const fs::path& folder) {
  if (!path_exists(folder / "config.json")) return nullptr;
  auto config = std::make_shared<json>(parse_json_file(folder / "config.json"));
  require<FormatError>(config->is_object(), printable_path(folder / "config.json"),
                       ": expected a JSON object");
  return config;
}

ControlNetWeights with_config(const TensorSet& tensors, const SteeredUnet& unet,
                              std::shared_ptr<const json> config) {
  WeightStore store = store_of(tensors);
  const bool low_rank = is_low_rank(tensors);
  if (low_rank) config = nullptr;
  const bool is_derived = config == nullptr;
  if (is_derived) config = std::make_shared<json>(low_rank ? of_unet(store, unet) : derived(store, unet));
  return {std::move(store), std::move(config), is_derived, low_rank};
}

bool is_controlnet_class(const json& config) {
  const json name = config.value("_class_name", json());
  return name == "ControlNetModel" || name == "ControlNetUnionModel" || name == "ControlNetModel_Union";
}

}  // namespace

bool holds_controlnet(const TensorSet& tensors) { return place_of(tensors).has_value(); }

ControlNetWeights controlnet_of(const TensorSet& tensors, const SteeredUnet& unet) {
  return with_config(tensors, unet, nullptr);
}

ControlNetWeights open_controlnet(const fs::path& path, const SteeredUnet& unet, const std::string& variant,
                                  FileAccess access) {
  if (is_folder_path(path)) {
    auto config = config_beside(path);
    require<FormatError>(
        config != nullptr, printable_path(path / "config.json"),
        ": is missing; a ControlNet's folder has it beside diffusion_pytorch_model.safetensors");
    std::vector<std::string> notes;
    const TensorSet tensors =
        TensorSet::open(component_weights(path, Component::kUnet, variant, notes), access);
    return with_config(tensors, unet, std::move(config));
  }
  const TensorSet tensors = TensorSet::open(path, access);
  const auto place = place_of(tensors);
  auto config = !place || place->ldm ? nullptr : config_beside(path.parent_path());
  if (config && !is_controlnet_class(*config)) config = nullptr;
  return with_config(tensors, unet, std::move(config));
}

}  // namespace rocm_sd
