#include "weights/convert.hpp"

#include <nlohmann/json.hpp>
#include <random>

#include "base/file.hpp"
#include "base/format.hpp"
#include "base/json.hpp"
#include "weights/component_loader.hpp"
#include "weights/gguf.hpp"

namespace rocm_sd {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kGgufEnding = ".gguf";

// Components that a pipeline is made of; TAESD belongs to no checkpoint.
constexpr Component kConverted[] = {Component::kUnet, Component::kVae, Component::kTextEncoder,
                                    Component::kTextEncoder2};

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  require<FileError>(!error, printable_path(path), ": cannot make the folder: ", error.message());
}

void write_json(const fs::path& path, const Json& json) {
  AtomicFile file(path);
  file.write(json.dump(2) + '\n');
  file.commit();
}

Json pipeline_index(const Checkpoint& model) {
  const ModelKind kind = model.kind();
  const bool xl = kind == ModelKind::kSdxl || kind == ModelKind::kSdxlRefiner;
  const std::string_view variant = unet_variant(model.in_channels());
  const bool depth = variant == "depth";
  const std::string head = xl ? "StableDiffusionXL" : "StableDiffusion";
  const std::string tail = variant == "inpainting"           ? "InpaintPipeline"
                           : variant == "instruct-pix2pix"   ? "InstructPix2PixPipeline"
                           : depth                           ? "Depth2ImgPipeline"
                           : kind == ModelKind::kSdxlRefiner ? "Img2ImgPipeline"
                                                             : "Pipeline";
  const Json scheduler = model.scheduler_config() != nullptr
                             ? Json(*model.scheduler_config())
                             : default_scheduler_config(kind, model.prediction(), model.zero_terminal_snr());
  Json index = {{"_class_name", head + tail}, {"_diffusers_version", "0.30.0"}};
  const auto add = [&](const std::string& name, const char* library, const Json& class_name) {
    index[name] = Json::array({class_name.is_null() ? Json(nullptr) : Json(library), class_name});
  };
  const auto has = [&](Component component) { return model.find(component) != nullptr; };
  if (xl) {
    if (kind == ModelKind::kSdxlRefiner || variant == "inpainting")
      index["requires_aesthetics_score"] = kind == ModelKind::kSdxlRefiner;
    index["force_zeros_for_empty_prompt"] = kind == ModelKind::kSdxl;
  } else {
    add("feature_extractor", "transformers", nullptr);
    add(depth ? "depth_estimator" : "safety_checker", "diffusers", nullptr);
    if (!depth) index["requires_safety_checker"] = false;
  }
  add("scheduler", "diffusers", scheduler.value("_class_name", "EulerDiscreteScheduler"));
  add("text_encoder", "transformers", has(Component::kTextEncoder) ? Json("CLIPTextModel") : Json(nullptr));
  add("tokenizer", "transformers", has(Component::kTextEncoder) ? Json("CLIPTokenizer") : Json(nullptr));
  if (xl) {
    const bool second = has(Component::kTextEncoder2);
    add("text_encoder_2", "transformers", second ? Json("CLIPTextModelWithProjection") : Json(nullptr));
    add("tokenizer_2", "transformers", second ? Json("CLIPTokenizer") : Json(nullptr));
  }
  add("unet", "diffusers", has(Component::kUnet) ? Json("UNet2DConditionModel") : Json(nullptr));
  add("vae", "diffusers", has(Component::kVae) ? Json("AutoencoderKL") : Json(nullptr));
  return index;
}

// The files of a tokenizer that are there, copied: its vocabulary in either form, added tokens,
// configuration.
void copy_tokenizer(const fs::path& source, const fs::path& target) {
  make_folder(target);
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer.json", "added_tokens.json",
                           "special_tokens_map.json", "tokenizer_config.json"}) {
    if (!path_exists(source / name)) continue;
    AtomicFile file(target / name);
    file.write(read_file(source / name, 64u << 20));
    file.commit();
  }
}

// And what CLIPTokenizer wants besides, where the source does not say it. OpenCLIP pads with "!" (id 0).
void write_tokenizer(const fs::path& source, const fs::path& target, bool pads_with_zero) {
  copy_tokenizer(source, target);
  if (path_exists(target / "tokenizer_config.json") || path_exists(target / "special_tokens_map.json"))
    return;
  const std::string pad = pads_with_zero ? "!" : "<|endoftext|>";
  write_json(target / "special_tokens_map.json", {{"bos_token", "<|startoftext|>"},
                                                  {"eos_token", "<|endoftext|>"},
                                                  {"pad_token", pad},
                                                  {"unk_token", "<|endoftext|>"}});
  write_json(target / "tokenizer_config.json", {{"add_prefix_space", false},
                                                {"bos_token", "<|startoftext|>"},
                                                {"do_lower_case", true},
                                                {"eos_token", "<|endoftext|>"},
                                                {"errors", "replace"},
                                                {"model_max_length", 77},
                                                {"pad_token", pad},
                                                {"tokenizer_class", "CLIPTokenizer"},
                                                {"unk_token", "<|endoftext|>"}});
}

// A folder that is filled beside its place and then takes it; what is left of it goes with this object. Where
// the place is taken, the files are moved into that folder.
class NewFolder {
 public:
  explicit NewFolder(const fs::path& place) : place_(place.has_filename() ? place : place.parent_path()) {
    path_ = place_;
    path_ += fmt::format(".{:08x}.part", std::random_device()());
    make_folder(path_);
  }
  ~NewFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  const fs::path& path() const { return path_; }

  void commit() const {
    std::error_code error;
    if (!path_exists(place_)) {
      fs::rename(path_, place_, error);
    } else {
      for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path_)) {
        const fs::path target = place_ / fs::relative(entry.path(), path_);
        if (entry.is_directory())
          make_folder(target);
        else if (!error)
          fs::rename(entry.path(), target, error);
      }
    }
    require<FileError>(!error, printable_path(place_),
                       ": cannot put the finished folder there: ", error.message());
  }

 private:
  fs::path place_, path_;
};

class Converter {
 public:
  Converter(const Checkpoint& model, const ConvertOptions& options)
      : model_(model), options_(options), changed_(options.change ? options.change(model) : nullptr) {}

  void write_folder(const fs::path& to) const {
    const NewFolder folder_made(to);
    write_into(folder_made.path(), to);
    folder_made.commit();
  }

  void write_into(const fs::path& to, const fs::path& named) const {
    for (const Component component : kConverted) {
      if (model_.find(component) == nullptr) continue;
      const bool text = component == Component::kTextEncoder || component == Component::kTextEncoder2;
      const fs::path folder = to / component_name(component);
      make_folder(folder);
      const WeightStore& store = model_.store(component);
      write_safetensors(
          folder / (text ? "model.safetensors" : "diffusion_pytorch_model.safetensors"),
          stoppable(diffusers_tensors(store, model_.config(component), options_.dtype, changed_.get())),
          {{"format", "pt"}});
      write_json(folder / "config.json", model_.config(component));
      if (text) add_tokenizer(to, named, component);
    }
    make_folder(to / "scheduler");
    write_json(to / "scheduler/scheduler_config.json", scheduler());
    write_json(to / "model_index.json", pipeline_index(model_));
  }

  void write_single_file(const fs::path& to) const {
    const bool gguf = to.extension() == kGgufEnding;
    const std::optional<DType> dtype = options_.gguf_type ? DType::kF32 : options_.dtype;
    std::vector<TensorToWrite> tensors;
    Metadata metadata = model_.metadata();
    metadata["format"] = "pt";
    metadata["modelspec.prediction_type"] = model_.prediction() == Prediction::kV ? "v" : "epsilon";
    metadata[kSchedulerMetadataKey] = scheduler().dump();
    for (const Component component : kConverted) {
      if (model_.find(component) == nullptr) continue;
      const nlohmann::json& config = model_.config(component);
      metadata[config_metadata_key(component)] = config.dump();
      for (TensorToWrite& tensor :
           ldm_tensors(model_.store(component), config, model_.kind(), dtype, changed_.get()))
        tensors.push_back(std::move(tensor));
    }
    if (const auto tokenizer = model_.tokenizer_folder(Component::kTextEncoder);
        tokenizer && has_own_vocabulary())
      note(concat("the model's own vocabulary does not fit into a single file: to convert it back, name ",
                  printable_path(*tokenizer), " with --vocabulary"));
    tensors = stoppable(std::move(tensors));
    if (gguf)
      write_gguf(to, gguf_tensors(std::move(tensors)), gguf_metadata(std::move(metadata)));
    else
      write_safetensors(to, std::move(tensors), metadata);
  }

 private:
  std::vector<GgufTensor> gguf_tensors(std::vector<TensorToWrite> tensors) const {
    std::vector<GgufTensor> out;
    for (TensorToWrite& tensor : tensors) {
      const DType stored =
          dtype_size(tensor.dtype) == 1 && is_float(tensor.dtype) ? DType::kF16 : tensor.dtype;
      const GgmlType type =
          options_.gguf_type ? gguf_stored_type(tensor, *options_.gguf_type) : ggml_type_of(stored);
      out.push_back({std::move(tensor), type});
    }
    return out;
  }
  // ComfyUI-GGUF loads by this name; of Stable Diffusion 2 it knows none and goes by the tensors.
  Metadata gguf_metadata(Metadata metadata) const {
    metadata.erase("general.architecture");
    if (model_.kind() == ModelKind::kSd1) metadata["general.architecture"] = "sd1";
    if (model_.kind() == ModelKind::kSdxl) metadata["general.architecture"] = "sdxl";
    return metadata;
  }
  Json scheduler() const {
    if (model_.scheduler_config() == nullptr)
      return default_scheduler_config(model_.kind(), model_.prediction(), model_.zero_terminal_snr());
    Json config(*model_.scheduler_config());
    // -Infinity is the default, which JSON cannot say; the reader made a string of it.
    if (config.contains("lambda_min_clipped") && config["lambda_min_clipped"].is_string())
      config.erase("lambda_min_clipped");
    return config;
  }
  int64_t tokens(Component text_encoder) const {
    return model_.store(text_encoder).shape("text_model.embeddings.token_embedding.weight")[0];
  }
  // The same tensors; asked for the next piece they see first whether to go on.
  std::vector<TensorToWrite> stoppable(std::vector<TensorToWrite> tensors) const {
    if (!options_.cancelled) return tensors;
    for (TensorToWrite& tensor : tensors)
      tensor.fill = [fill = std::move(tensor.fill), this](uint64_t offset, uint64_t bytes, void* dst) {
        require<CancelledError>(!options_.cancelled(), "cancelled");
        fill(offset, bytes, dst);
      };
    return tensors;
  }
  bool has_own_vocabulary() const { return tokens(Component::kTextEncoder) != 49408; }
  void note(const std::string& line) const {
    if (options_.on_note) options_.on_note(line);
  }

  // named: what `to` will be called.
  void add_tokenizer(const fs::path& to, const fs::path& named, Component component) const {
    const bool second = component == Component::kTextEncoder2;
    const char* folder = second ? "tokenizer_2" : "tokenizer";
    const fs::path target = to / folder;
    if (const auto own = model_.tokenizer_folder(component))
      return write_tokenizer(*own, target, second || model_.kind() == ModelKind::kSd2);
    if (options_.vocabulary.empty() || !path_exists(options_.vocabulary / "vocab.json"))
      return note(concat("no vocabulary found: ", printable_path(named / folder),
                         " was not written, Diffusers will ask for it"));
    const auto size = static_cast<int64_t>(parse_json_file(options_.vocabulary / "vocab.json").size());
    if (size > tokens(component))
      return note(concat("the vocabulary has ", size, " tokens, the text encoder's table ", tokens(component),
                         " rows: ", printable_path(named / folder),
                         " was not written; name the model's own with --vocabulary"));
    write_tokenizer(options_.vocabulary, target, second || model_.kind() == ModelKind::kSd2);
  }

  const Checkpoint& model_;
  const ConvertOptions& options_;
  std::shared_ptr<const ChangedWeights> changed_;
};

}  // namespace

Json default_scheduler_config(ModelKind kind, Prediction prediction, bool zero_terminal_snr) {
  const bool euler = kind == ModelKind::kSdxl || kind == ModelKind::kSdxlRefiner || zero_terminal_snr;
  const bool ddim = !euler && kind == ModelKind::kSd2;
  Json config = {{"_class_name", euler  ? "EulerDiscreteScheduler"
                                 : ddim ? "DDIMScheduler"
                                        : "PNDMScheduler"},
                 {"beta_end", 0.012},
                 {"beta_schedule", "scaled_linear"},
                 {"beta_start", 0.00085},
                 {"num_train_timesteps", 1000},
                 {"prediction_type", prediction_name(prediction)},
                 {"steps_offset", 1},
                 {"timestep_spacing", zero_terminal_snr ? "trailing" : "leading"}};
  if (zero_terminal_snr) config["rescale_betas_zero_snr"] = true;
  if (ddim) config["clip_sample"] = false;
  if (!euler) config["set_alpha_to_one"] = false;
  if (!euler && !ddim) config["skip_prk_steps"] = true;
  return config;
}

void convert(const fs::path& from, const fs::path& to, const ConvertOptions& options) {
  const bool gguf = to.extension() == kGgufEnding, single = gguf || to.extension() == ".safetensors";
  require<UsageError>(options.overwrite || !path_exists(to), printable_path(to), ": exists already");
  require<UsageError>(!options.dtype || is_float(*options.dtype), "dtype ",
                      options.dtype.value_or(DType::kF32), " is not a type that weights can have");
  require<UsageError>(gguf || !options.gguf_type, printable_path(to),
                      ": types of GGUF are for names that end in ", kGgufEnding);
  const Checkpoint model = Checkpoint::open(from, options.source);
  if (options.check) options.check(model);
  if (options.on_note)
    for (const std::string& line : model.notes()) options.on_note(line);
  const Converter converter(model, options);
  if (single)
    converter.write_single_file(to);
  else
    converter.write_folder(to);
}

}  // namespace rocm_sd
