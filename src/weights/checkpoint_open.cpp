// Opening a checkpoint: recognising what a path holds and putting its parts together.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "base/json.hpp"
#include "weights/checkpoint_parts.hpp"
#include "weights/derive_config.hpp"
#include "weights/diffusers_folder.hpp"
#include "weights/edm_keys.hpp"
#include "weights/name_extent.hpp"

namespace rocm_sd {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// The class of an entry of model_index.json; empty where the pipeline goes without it.
std::string indexed_class(const json& index, std::string_view entry, const std::string& what) {
  const auto it = index.find(entry);
  if (it == index.end()) return {};
  require<FormatError>(it->is_array() && it->size() == 2, what, ": ", entry, ": expected [library, class]");
  return (*it)[1].is_string() ? (*it)[1].get<std::string>() : std::string();
}
std::string indexed_class(const json& index, Component component, const std::string& what) {
  return indexed_class(index, component_name(component), what);
}

ModelKind kind_by_width(int64_t width, bool has_added_embedding, const std::string& what) {
  if (has_added_embedding) return width == 1280 ? ModelKind::kSdxlRefiner : ModelKind::kSdxl;
  require<FormatError>(
      width == 768 || width == 1024, what,
      ": cannot tell the model's kind: its UNet attends to states of width ", width,
      ", expected 768 (SD 1.x), 1024 (SD 2.x), or an SDXL UNet with its label_emb (add_embedding)");
  return width == 768 ? ModelKind::kSd1 : ModelKind::kSd2;
}

std::optional<Prediction> parse_prediction_name(std::string_view name) {
  if (name == "epsilon" || name == "eps") return Prediction::kEpsilon;
  if (name == "v_prediction" || name == "v") return Prediction::kV;
  if (name == "sample") return Prediction::kSample;
  return std::nullopt;
}

// A statistic by which ComfyUI tells SD 2.x's v-prediction checkpoints (comfy/supported_models.py,
// SD20.model_type): the spread of the last attention block's first norm bias is above 0.09 in those trained
// on v.
bool looks_like_v_prediction(const WeightStore& unet) {
  const std::string name = "up_blocks.3.attentions.2.transformer_blocks.0.norm1.bias";
  const StoredTensor* weight = unet.find(name);
  if (weight == nullptr || weight->shape.rank() != 1 || weight->shape[0] < 2 || weight->shape[0] > 65536)
    return false;
  std::vector<float> values(static_cast<size_t>(weight->shape[0]));
  unet.read_range(*weight, 0, weight->shape[0], DType::kF32, values.data());
  double sum = 0, squares = 0;
  for (const float v : values) sum += v, squares += static_cast<double>(v) * v;
  const double mean = sum / static_cast<double>(values.size());
  return std::sqrt(squares / static_cast<double>(values.size()) - mean * mean) > 0.09;
}

}  // namespace

// Fills a Checkpoint's parts from a path and the options.
class CheckpointOpener {
 public:
  using Parts = Checkpoint::Parts;
  CheckpointOpener(const fs::path& model, const CheckpointOptions& options)
      : options_(options), parts_(std::make_unique<Parts>()) {
    parts_->path = model;
    parts_->loader.variant = options.variant;
    parts_->loader.access = options.access;
    parts_->loader.live = options.live;
  }

  std::unique_ptr<Parts> open() {
    fs::path model = parts_->path;
    if (model.filename() == "model_index.json") model = model.parent_path();
    if (is_folder_path(model))
      open_folder(model);
    else
      open_file(model);
    return finish();
  }

  std::unique_ptr<Parts> open(const TensorSet& tensors) {
    open_tensors(tensors);
    return finish();
  }

 private:
  std::unique_ptr<Parts> finish() {
    open_replacements();
    if (!parts_->folder) guess_kind();
    if (const WeightStore* unet = parts_->find(Component::kUnet)) check_context(*unet);
    read_prediction();
    derive_configs();
    return std::move(parts_);
  }

  void set_scheduler(json config, const std::string& what) {
    require<FormatError>(config.is_object(), what, ": expected a JSON object");
    const auto name = config.find("_class_name");
    require<FormatError>(name == config.end() || name->is_string(), what, ": _class_name: expected a string");
    parts_->scheduler = std::move(config);
  }

  void put(LoadedComponent loaded) {
    const Component component = loaded.store.component();
    parts_->components.insert_or_assign(component, std::move(loaded));
  }

  void open_folder(const fs::path& folder) {
    parts_->path = folder;
    if (!path_exists(folder / "model_index.json")) return open_component_folder(folder);
    parts_->folder = true;
    const std::string what = printable_path(folder / "model_index.json");
    parts_->index = parse_json_file(folder / "model_index.json");
    const json& index = *parts_->index;
    require<FormatError>(index.is_object(), what, ": expected a JSON object");
    for (const Component component : kComponents) {
      if (component == Component::kTinyVae || indexed_class(index, component, what).empty()) continue;
      if (is_replaced(component)) continue;
      const fs::path at = folder / component_name(component);
      require<FileError>(is_folder_path(at), what, ": names the component ", component_name(component),
                         ", but ", printable_path(at), " is no folder");
      put(parts_->loader.open_folder(at, component));
    }
    for (const Component component : {Component::kTextEncoder, Component::kTextEncoder2}) {
      if (indexed_class(index, component, what).empty()) continue;
      if (const auto at = tokenizer_folder_in(folder, component, parts_->loader.notes))
        parts_->tokenizers.emplace(component, *at);
    }
    const fs::path config = folder / "scheduler/scheduler_config.json";
    const bool scheduler = path_exists(config);
    require<FormatError>(
        scheduler || indexed_class(index, "scheduler", what).empty(), printable_path(config),
        ": is missing, though model_index.json names a scheduler; it says what the UNet predicts "
        "and with which noise it was trained");
    if (!scheduler)
      parts_->loader.notes.push_back(
          "no scheduler/scheduler_config.json: assumed are epsilon prediction and Stable Diffusion's noise "
          "(--prediction says otherwise)");
    if (scheduler)
      set_scheduler(parse_json_file(config, {.nonfinite_as_text = true}), printable_path(config));
    parts_->kind = folder_kind(what);
  }

  ModelKind folder_kind(const std::string& what) const {
    const json& index = *parts_->index;
    const auto name = index.find("_class_name");
    require<FormatError>(name != index.end() && name->is_string(), what, ": _class_name is missing");
    const std::string pipeline = *name;
    const bool two = !indexed_class(index, Component::kTextEncoder2, what).empty();
    const bool one = !indexed_class(index, Component::kTextEncoder, what).empty();
    require<FormatError>(
        pipeline.starts_with("StableDiffusion") || pipeline.starts_with("LatentConsistency") || two, what,
        ": ", printable(pipeline), " is not a Stable Diffusion 1, 2 or XL pipeline");
    require<FormatError>(!pipeline.starts_with("StableDiffusion3"), what,
                         ": Stable Diffusion 3 is not supported");
    if (two) return one ? ModelKind::kSdxl : ModelKind::kSdxlRefiner;
    // SD 1 and 2 share their pipeline class; the text encoder's activation tells CLIP-L from OpenCLIP-H.
    const auto text = parts_->components.find(Component::kTextEncoder);
    if (text == parts_->components.end() || !text->second.config) return ModelKind::kSd1;
    const auto activation = text->second.config->find("hidden_act");
    return activation != text->second.config->end() && *activation == "gelu" ? ModelKind::kSd2
                                                                             : ModelKind::kSd1;
  }

  // A folder with config.json and one component's weights.
  void open_component_folder(const fs::path& folder) {
    require<FileError>(path_exists(folder / "config.json"), printable_path(folder),
                       ": no model_index.json in this folder, so it is not a Diffusers model");
    const json config = parse_json_file(folder / "config.json");
    const std::string name = config.is_object() ? config.value("_class_name", json("")).dump() : "";
    const Component component = name == "\"UNet2DConditionModel\"" ? Component::kUnet
                                : name == "\"AutoencoderKL\""      ? Component::kVae
                                : name == "\"AutoencoderTiny\""    ? Component::kTinyVae
                                                                   : Component::kTextEncoder;
    put(parts_->loader.open_folder(folder, component));
  }

  void open_file(const fs::path& file) { open_tensors(TensorSet::open(file, options_.access)); }

  void open_tensors(const TensorSet& tensors) {
    const std::string what = printable_path(tensors.path());
    parts_->metadata = tensors.metadata();
    const std::vector<LayoutPart> found = find_parts(tensors, &parts_->loader.notes);
    if (found.empty()) {
      const std::string foreign = describe_foreign(tensors);
      throw FormatError(concat(what, ": ",
                               foreign.empty() ? "no part of a Stable Diffusion model was recognised"
                                               : concat("this is ", foreign, ", not a model")));
    }
    for (const Component component : kComponents)
      if (std::any_of(found.begin(), found.end(),
                      [&](const auto& part) { return part.component == component; }))
        put(parts_->loader.take(tensors, component, found));
    sort_leftovers(tensors, found, parts_->loader.keys);
    has_v_marker_ = tensors.find("v_pred") != nullptr;
    parts_->zero_terminal_snr = tensors.find("ztsnr") != nullptr;
    if (has_edm_keys(tensors)) {
      parts_->scheduler = edm_scheduler_config(tensors);
      vae_fields_ = edm_vae_fields(tensors);
    }
    if (const auto text = tensors.metadata().find(kSchedulerMetadataKey); text != tensors.metadata().end()) {
      const std::string title = concat(what, ": metadata ", text->first);
      set_scheduler(parse_json(text->second, {}, title), title);
    }
  }

  // From the text encoders where they are there, else from the UNet's widths.
  void guess_kind() {
    const auto& components = parts_->components;
    const auto first = components.find(Component::kTextEncoder);
    const WeightStore* unet = parts_->find(Component::kUnet);
    if (components.contains(Component::kTextEncoder2)) {
      parts_->kind = first != components.end() ? ModelKind::kSdxl : ModelKind::kSdxlRefiner;
    } else if (first != components.end() && (unet == nullptr || !has_any(*unet, "add_embedding."))) {
      const bool h = first->second.style == NameStyle::kOpenClip || text_width(first->second.store) == 1024;
      parts_->kind = h ? ModelKind::kSd2 : ModelKind::kSd1;
      require<FormatError>(unet == nullptr || !unet->has("class_embedding.linear_1.weight"),
                           unet ? unet->title() : "", ": unCLIP models are not supported");
    } else if (unet != nullptr) {
      parts_->kind =
          kind_by_width(cross_attention_width(*unet), has_any(*unet, "add_embedding."), unet->title());
    }
  }

  const fs::path& replacement(Component component) const {
    static const fs::path kNone;
    switch (component) {
      case Component::kUnet: return options_.unet;
      case Component::kVae: return options_.vae;
      case Component::kTextEncoder: return options_.text_encoder;
      case Component::kTextEncoder2: return options_.text_encoder_2;
      case Component::kTinyVae: break;
    }
    return kNone;
  }
  bool is_replaced(Component component) const { return !replacement(component).empty(); }

  void open_replacements() {
    for (const Component component : kComponents)
      if (is_replaced(component)) {
        put(parts_->loader.open_any(replacement(component), component));
        parts_->loader.notes.push_back(
            concat(component_name(component), ": taken from ", printable_path(replacement(component))));
      }
    std::optional<LoadedComponent> tiny;
    for (const fs::path& path : options_.tiny_vae) {
      LoadedComponent half = parts_->loader.open_any(path, Component::kTinyVae);
      tiny = tiny ? merge_halves(std::move(*tiny), std::move(half)) : std::move(half);
    }
    if (tiny) put(std::move(*tiny));
  }

  static LoadedComponent merge_halves(LoadedComponent a, LoadedComponent b) {
    WeightMap weights = a.store.weights();
    for (const auto& [name, weight] : b.store.weights())
      require<FormatError>(weights.emplace(name, weight).second, b.store.title(), ": \"", printable(name),
                           "\" is also in ", a.store.title());
    auto files = a.store.files();
    files.insert(files.end(), b.store.files().begin(), b.store.files().end());
    const std::string title = concat(a.store.title(), " and ", b.store.title());
    return {
        WeightStore(Component::kTinyVae, title, std::move(files), std::move(weights)), a.style, {}, false};
  }

  // The text encoders must give what the UNet attends to: this catches an SD 2 encoder in an SD 1 model at
  // once.
  void check_context(const WeightStore& unet) const {
    int64_t width = 0;
    std::string made_of;
    for (const Component component : {Component::kTextEncoder, Component::kTextEncoder2}) {
      const WeightStore* text = parts_->find(component);
      const bool used = component == Component::kTextEncoder ? parts_->kind != ModelKind::kSdxlRefiner
                                                             : parts_->kind >= ModelKind::kSdxl;
      if (!used) continue;
      if (text == nullptr) return;
      width += text_width(*text);
      made_of += concat(made_of.empty() ? "" : " and ", text->title());
    }
    const int64_t wanted = cross_attention_width(unet);
    require(wanted == 0 || width == wanted, unet.title(), " attends to text states of width ", wanted,
            ", but ", made_of, " give ", width, ": these parts belong to different models");
  }

  void read_prediction() {
    const auto metadata = parts_->metadata.find("modelspec.prediction_type");
    if (parts_->scheduler) {
      const auto field = parts_->scheduler->find("prediction_type");
      const bool named = field != parts_->scheduler->end() && !field->is_null();
      const auto type = !named ? Prediction::kEpsilon
                               : parse_prediction_name(field->is_string() ? field->get<std::string>() : "");
      require<FormatError>(type.has_value(),
                           "scheduler_config.json: prediction_type: expected epsilon, v_prediction or "
                           "sample, got ",
                           named ? printable(field->dump()) : "");
      set_prediction(*type, "scheduler_config.json");
      const auto rescale = parts_->scheduler->find("rescale_betas_zero_snr");
      if (rescale != parts_->scheduler->end() && *rescale == true) parts_->zero_terminal_snr = true;
    } else if (has_v_marker_) {
      set_prediction(Prediction::kV, "key v_pred");
    } else if (metadata != parts_->metadata.end() && parse_prediction_name(metadata->second)) {
      set_prediction(*parse_prediction_name(metadata->second), "metadata modelspec.prediction_type");
    } else if (const WeightStore* unet = parts_->find(Component::kUnet);
               unet != nullptr && parts_->kind == ModelKind::kSd2 && unet->has("conv_in.weight") &&
               unet->shape("conv_in.weight")[1] == 4 && looks_like_v_prediction(*unet)) {
      set_prediction(Prediction::kV, "statistics of the weights, as ComfyUI does it");
    }
  }
  void set_prediction(Prediction prediction, std::string source) {
    parts_->prediction = prediction;
    parts_->prediction_source = std::move(source);
  }

  void derive_configs() {
    DeriveHints hints{.kind = parts_->kind};
    hints.upcast_attention = parts_->kind == ModelKind::kSd2 && parts_->prediction == Prediction::kV;
    const WeightStore* second = parts_->find(Component::kTextEncoder2);
    if (second != nullptr && second->has("text_projection.weight"))
      hints.pooled_width = second->shape("text_projection.weight")[0];
    for (auto& [component, loaded] : parts_->components) {
      const bool first_text = component == Component::kTextEncoder;
      const bool open_clip = first_text && loaded.style == NameStyle::kOpenClip;
      hints.drops_last_layer = open_clip && carries_unused_layer(loaded.store);
      if (loaded.config) continue;
      hints.quick_gelu = first_text && parts_->kind != ModelKind::kSd2;
      loaded.config = derive_config(loaded.store, hints);
      if (component == Component::kVae) loaded.config->update(vae_fields_);
      loaded.config_is_derived = true;
      if (open_clip && !hints.drops_last_layer) note_layers(loaded);
    }
  }

  // SD 2.x runs OpenCLIP-H without its last layer, which most of its single files carry all the same.
  void note_layers(const LoadedComponent& loaded) {
    const int stored = extent(loaded.store, "text_model.encoder.layers.");
    if (loaded.config->at("num_hidden_layers") == stored)
      parts_->loader.notes.push_back(
          concat(loaded.store.title(), ": has ", stored, " layers, those that SD 2 runs: all are used"));
  }

  // SD 2.x runs OpenCLIP-H without its last layer and projection. Its published single files carry both all
  // the same, those that converters write from a Diffusers folder have 23 layers and no projection. Of other
  // depths the projection tells: it comes with the layer.
  static bool carries_unused_layer(const WeightStore& store) {
    constexpr int kAll = 24;
    const int layers = extent(store, "text_model.encoder.layers.");
    return layers == kAll || (layers != kAll - 1 && store.has("text_projection.weight"));
  }

  const CheckpointOptions& options_;
  std::unique_ptr<Parts> parts_;
  bool has_v_marker_ = false;
  json vae_fields_ = json::object();  // that other tensors of the file tell
};

Checkpoint Checkpoint::open(const fs::path& model, const CheckpointOptions& options) {
  return Checkpoint(CheckpointOpener(model, options).open());
}
Checkpoint Checkpoint::open(const TensorSet& tensors, const CheckpointOptions& options) {
  return Checkpoint(CheckpointOpener(tensors.path(), options).open(tensors));
}

}  // namespace rocm_sd
