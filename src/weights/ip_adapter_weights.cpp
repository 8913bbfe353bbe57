#include "weights/ip_adapter_weights.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "weights/diffusers_folder.hpp"
#include "weights/name_extent.hpp"

namespace rocm_sd {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Weights = std::map<std::string, StoredTensor, std::less<>>;
constexpr size_t kNamed = 8;
constexpr std::string_view kVision = "vision_model.";

void add(Weights& weights, std::string name, const TensorRef& ref, Shape shape, const std::string& what) {
  const bool is_new = weights.emplace(name, StoredTensor{.ref = ref, .shape = std::move(shape)}).second;
  require<FormatError>(is_new, what, ": two tensors claim to be ", printable(name));
}

std::string names_in(const TensorSet& tensors) {
  std::vector<std::string> names;
  for (const TensorRef& ref : tensors.tensors()) names.push_back(ref.entry->name);
  return listed_names(names, kNamed);
}

// The parts of full CLIP models, and buffers, that an image encoder leaves alone.
bool is_left_alone(std::string_view name) {
  return name.starts_with("text_model.") || name.starts_with("text_projection.") || name == "logit_scale" ||
         name.ends_with(".position_ids");
}

// The configuration of OpenAI's and OpenCLIP's encoders; heads and the activation are told by the width.
json derived_config(const WeightStore& store) {
  const auto width = [&](const char* name, int axis) {
    return dim_of(store, {concat(kVision, name)}, axis, 0);
  };
  const int64_t hidden = width("embeddings.patch_embedding.weight", 0),
                patch = width("embeddings.patch_embedding.weight", 2),
                places = width("embeddings.position_embedding.weight", 0);
  const auto side =
      static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(std::max<int64_t>(places, 1) - 1))));
  require<FormatError>(
      hidden > 0 && patch > 0 && patch < 1024 && places > 1 && side < 1024 && side * side + 1 == places,
      store.title(), ": expected patches and positions of a square image, got ", "patch_embedding ", hidden,
      " x ", patch, " x ", patch, " and ", places, " positions");
  constexpr int64_t kBase = 768, kLarge = 1024, kHuge = 1280, kGiant = 1664;
  require<FormatError>(hidden == kBase || hidden == kLarge || hidden == kHuge || hidden == kGiant,
                       store.title(), ": an image encoder of width ", hidden,
                       " needs its config.json (a folder): known by their widths are ", kBase, ", ", kLarge,
                       ", ", kHuge, " (ViT-H/14) and ", kGiant, " (ViT-bigG/14)");
  return {{"hidden_size", hidden},
          {"intermediate_size", width("encoder.layers.0.mlp.fc1.weight", 0)},
          {"num_hidden_layers", std::min(extent(store, concat(kVision, "encoder.layers.")), 128)},
          {"num_attention_heads", hidden == kBase ? 12 : 16},
          {"image_size", side * patch},
          {"patch_size", patch},
          {"projection_dim", dim_of(store, {"visual_projection.weight"}, 0, 0)},
          {"hidden_act", hidden >= kHuge ? "gelu" : "quick_gelu"}};
}

}  // namespace

WeightStore ip_adapter_of(const TensorSet& tensors) {
  const std::string what = printable_path(tensors.path());
  Weights weights;
  std::vector<std::string> unknown, low_rank;
  for (const TensorRef& ref : tensors.tensors()) {
    const std::string& name = ref.entry->name;
    const Shape& shape = ref.entry->shape;
    if (name == "image_proj.latents" && shape.rank() == 3 && shape[0] == 1)
      add(weights, name + ".weight", ref, {shape[1], shape[2]}, what);
    else if (name.starts_with("ip_adapter.") && name.find("_lora.") != name.npos)
      low_rank.push_back(name);
    else if (name.starts_with("image_proj.") || name.starts_with("ip_adapter."))
      add(weights, name, ref, shape, what);
    else
      unknown.push_back(name);
  }
  require<FormatError>(!weights.empty(), what,
                       ": expected an IP-Adapter (image_proj.*, ip_adapter.*), found ", names_in(tensors));
  require<FormatError>(unknown.empty(), what, ": ", unknown.size(),
                       unknown.size() == 1 ? " tensor has" : " tensors have",
                       " no place in an IP-Adapter: ", listed_names(unknown, kNamed));
  require<FormatError>(
      low_rank.empty(), what, ": ", low_rank.size(),
      " tensors are the LoRA of a FaceID adapter: give it as a file of its own by --lora, and the adapter "
      "without it: ",
      listed_names(low_rank, kNamed));
  return {Component::kUnet, concat("ip-adapter of ", what), tensors.files(), std::move(weights)};
}

WeightStore open_ip_adapter(const fs::path& path, FileAccess access) {
  require<FileError>(path_exists(path), "ip-adapter: ", printable(path.native()), ": no such file");
  require<FormatError>(!is_folder_path(path), "ip-adapter: ", printable(path.native()),
                       ": expected a .safetensors file, got a folder");
  return ip_adapter_of(TensorSet::open(path, access));
}

ImageEncoderWeights image_encoder_of(const TensorSet& tensors, std::shared_ptr<const json> config) {
  const std::string what = printable_path(tensors.path());
  Weights weights;
  std::vector<std::string> unknown;
  for (const TensorRef& ref : tensors.tensors()) {
    const std::string& name = ref.entry->name;
    const Shape& shape = ref.entry->shape;
    if (is_left_alone(name)) continue;
    if (name == "vision_model.embeddings.class_embedding" && shape.rank() == 1)
      add(weights, name + ".weight", ref, {1, shape[0]}, what);
    else if (name.starts_with(kVision) || name == "visual_projection.weight")
      add(weights, name, ref, shape, what);
    else
      unknown.push_back(name);
  }
  require<FormatError>(!weights.empty(), what,
                       ": expected a CLIP image encoder with transformers' names (vision_model.*), found ",
                       names_in(tensors));
  require<FormatError>(unknown.empty(), what, ": ", unknown.size(),
                       unknown.size() == 1 ? " tensor has" : " tensors have",
                       " no place in a CLIP image encoder: ", listed_names(unknown, kNamed));
  WeightStore store(Component::kTextEncoder, concat("image encoder of ", what), tensors.files(),
                    std::move(weights));
  if (!config) config = std::make_shared<json>(derived_config(store));
  return {std::move(store), std::move(config)};
}

ImageEncoderWeights open_image_encoder(const fs::path& path, const std::string& variant, FileAccess access) {
  require<FileError>(path_exists(path), "image-encoder: ", printable(path.native()),
                     ": no such file or folder");
  if (!is_folder_path(path)) return image_encoder_of(TensorSet::open(path, access), nullptr);
  require<FileError>(path_exists(path / "config.json"), "image-encoder: ", printable(path.native()),
                     ": no config.json in this folder");
  std::vector<std::string> notes;
  const fs::path file = component_weights(path, Component::kTextEncoder, variant, notes);
  return image_encoder_of(TensorSet::open(file, access),
                          std::make_shared<json>(parse_json_file(path / "config.json")));
}

}  // namespace rocm_sd
