#include "pipeline/components.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "kernels/gemm/linear_eight_bit.hpp"
#include "models/bytes_to_load.hpp"
#include "models/completeness.hpp"
#include "models/store_source.hpp"
#include "pipeline/distilled.hpp"
#include "pipeline/model_tokenizer.hpp"
#include "pipeline/weights_id.hpp"
#include "weights/file_hash.hpp"

namespace rocm_sd {
namespace {

DType parse_compute_type(const std::string& name, const Device& device) {
  const bool host = device.kind() == DeviceKind::kHost;
  if (name == "auto") return device.preferred_dtype();
  if (name == "bf16") return DType::kBF16;
  const bool f32 = name == "f32" || name == "fp32", f16 = name == "f16" || name == "fp16";
  require<UsageError>(f32 || f16, "dtype: expected auto, f16, bf16 or f32, got \"", printable(name), "\"");
  require<UsageError>(!(host && f16), "dtype: the CPU does not compute in f16; expected auto, f32 or bf16");
  return f16 ? DType::kF16 : DType::kF32;
}

// Of parts on several devices those on the CPU take its own 16-bit type in place of the GPUs'.
DType part_type(const std::string& name, const Placement& place, Part part) {
  const bool f16 = name == "f16" || name == "fp16";
  const bool host = place[part].kind() == DeviceKind::kHost;
  return parse_compute_type(f16 && host && place.several() ? "bf16" : name, place[part]);
}

// The text is encoded once and every step of a picture sees the same error of it, so bf16 is not enough: f16
// on a GPU; on the host, which has no f16 products, f32 with weights kept in f16.
DType text_compute(DType compute, const Device& device) {
  if (compute != DType::kBF16) return compute;
  return device.kind() == DeviceKind::kHost ? DType::kF32 : DType::kF16;
}
DType text_stored(DType compute) { return compute == DType::kBF16 ? DType::kF16 : compute; }

WeightFormat parse_weight_format(const std::string& name, DType compute) {
  for (const DType type : {DType::kI8, DType::kF8E4M3})
    for (const bool products : {false, true})
      if (const WeightFormat format{type, products}; name == format.name()) return format;
  require<UsageError>(name == "auto" || name == dtype_name(compute),
                      "weights: expected auto, int8, fp8, int8-products or fp8-products, got \"",
                      printable(name), "\"; the compute type is ", compute, " (--dtype)");
  return {};
}

// Convolutions are most of a VAE, and are not multiplied in 8 bits.
WeightFormat parse_vae_weight_format(const std::string& name) {
  for (const DType type : {DType::kI8, DType::kF8E4M3})
    if (const WeightFormat format{type, false}; name == format.name()) return format;
  require<UsageError>(name == "auto", "vae-weights: expected auto, int8 or fp8, got \"", printable(name),
                      "\"");
  return {};
}

// What weights in 8 bits give on this device, where it is less than was asked for.
void note_weight_format(const char* option, const WeightFormat& format, DType compute, Device& device) {
  if (!format) return;
  if (device.kind() == DeviceKind::kHost) {
    log().warn("{}: {}: the CPU widens them once, when it lays them out: they take no less memory", option,
               format.name());
    return;
  }
  auto& gpu = static_cast<GpuDevice&>(device);
  if (format.products && (compute == DType::kF32 || !multiplies_eight_bit(gpu, format.eight_bit)))
    log().warn("{}: {}: {} has no such products for {}: they are widened for each product", option,
               format.name(), gpu.traits().arch, compute);
}

// In a thread of its own: a picture takes longer than hashing does. "" where the file cannot be read again.
std::shared_future<std::string> hash_later(const std::filesystem::path& path) {
  return std::async(std::launch::async,
                    [path]() -> std::string {
                      try {
                        return cached_sha256(path, hash_cache_file());
                      } catch (const std::exception& e) {
                        log().debug("hash: {}", e.what());
                        return "";
                      }
                    })
      .share();
}

constexpr int64_t kMaxElements = int64_t{1} << 40;  // of a live tensor: far from overflow

LiveComponents live_components(const std::vector<LiveTensor>& tensors) {
  std::map<Component, std::vector<MemoryTensor>> by_component;
  for (const LiveTensor& tensor : tensors) {
    const auto dtype = dtype_from_safetensors(tensor.dtype);
    require<UsageError>(dtype.has_value(), printable(tensor.name), ": dtype \"", printable(tensor.dtype),
                        "\": expected F32, F16 or BF16");
    require<UsageError>(tensor.data != nullptr && tensor.shape.size() <= Shape::kMaxRank,
                        printable(tensor.name), ": expected memory and at most ", Shape::kMaxRank,
                        " dimensions");
    int64_t elements = 1;
    for (const int64_t n : tensor.shape) {
      require<UsageError>(n > 0 && n <= kMaxElements / elements, printable(tensor.name), ": a dimension of ",
                          n);
      elements *= n;
    }
    const auto component = std::find_if(std::begin(kComponents), std::end(kComponents),
                                        [&](Component c) { return component_name(c) == tensor.component; });
    require<UsageError>(component != std::end(kComponents), printable(tensor.name), ": no component \"",
                        printable(tensor.component), "\"");
    by_component[*component].push_back(
        {tensor.name, *dtype, Shape(std::span<const int64_t>(tensor.shape)), tensor.data});
  }
  LiveComponents out;
  for (const auto& [component, listed] : by_component)
    out.emplace(component,
                SafetensorsFile::of_memory(concat("the live ", component_name(component)), listed));
  return out;
}

struct Loader {
  const LoadOptions& options;
  const Ranks* ranks;
  const Callbacks& callbacks;
  Components& out;
  int step = 0, total = 0;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();

  const Checkpoint& checkpoint() const { return *out.checkpoint; }
  std::map<const Device*, uint64_t> planned;  // bytes of the weights that are on it, and that come next

  // Before weights of so many bytes are loaded: whether all of a device's fit the budget is known from here
  // on. Those that do not never reach the device; those that are there leave it before they are used.
  void expect(Part part, uint64_t bytes) {
    const Device& device = out.place[part];
    const uint64_t sum = planned[&device] += bytes;
    if (options.vram_budget == 0 || &device == &host_device() || out.loaded_for_offload ||
        sum <= options.vram_budget)
      return;
    log().warn(
        "memory: weights of more than {:.1f} MB, the budget is {:.1f} MB: they wait in host memory "
        "(--offload)",
        static_cast<double>(sum) / 1e6, static_cast<double>(options.vram_budget) / 1e6);
    out.loaded_for_offload = true;
  }

  void report() {
    ++step;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const bool stop = (callbacks.cancelled && callbacks.cancelled()) ||
                      (callbacks.progress && !callbacks.progress({"load", step, total, seconds}));
    require<CancelledError>(!stop, "cancelled");
  }

  // position: 0 for the first encoder of the UNet's context columns.
  void load_text_encoder(Component component) {
    const bool sdxl = out.is_sdxl();
    const ClipConfig config =
        clip_config(checkpoint().config(component), config_title(checkpoint(), component));
    ModelTokenizer own = open_tokenizer(checkpoint(), component, config.positions);
    ClipTokenizer& tokenizer = own.tokenizer;
    require<FormatError>(tokenizer.vocab_size() <= config.vocabulary, config_title(checkpoint(), component),
                         ": the vocabulary has ", tokenizer.vocab_size(),
                         " tokens, the text encoder's table ", config.vocabulary, " rows");
    const DType stored = text_stored(out.dtypes[Part::kText]);
    expect(Part::kText, bytes_to_load(ClipTextModel(config), stored));
    out.text.push_back(
        {component,
         ClipTextModel::load(out.loading_device(Part::kText), config,
                             StoreSource(checkpoint().store(component)),
                             text_compute(out.dtypes[Part::kText], out.place[Part::kText]), stored),
         std::move(tokenizer), own.chunks.pad_id, component == Component::kTextEncoder2, sdxl ? 1 : 0, !sdxl,
         config.use_attention_mask && !sdxl});
    out.info.parameters += static_cast<uint64_t>(count_parameters(ClipTextModel(config)));
    report();
  }

  void load_unet() {
    const UNetConfig config =
        unet_config(checkpoint().config(Component::kUnet), config_title(checkpoint(), Component::kUnet));
    const int64_t in = config.in_channels;
    require<FormatError>(
        in == 4 || in == 5 || in == 8 || in == 9, config_title(checkpoint(), Component::kUnet),
        ": in_channels: expected 4, 5 (depth), 8 (instruct-pix2pix) or 9 (inpainting), got ", in);
    require<FormatError>(config.out_channels == 4, config_title(checkpoint(), Component::kUnet),
                         ": out_channels: expected 4, got ", config.out_channels);
    require<FormatError>(config.context_width() > 0, config_title(checkpoint(), Component::kUnet),
                         ": no block attends to the text (down_block_types, up_block_types, mid_block_type): "
                         "expected at least one with cross attention");
    if (ranks && ranks->division() == Division::kLayers && ranks->count() > 1)
      out.layers = divide_layers(config, ranks->count())[static_cast<size_t>(ranks->rank())];
    if (ranks && ranks->division() == Division::kTensors) out.share = {ranks->rank(), ranks->count()};
    const auto dividing =
        static_cast<uint64_t>(ranks && (!out.layers.all() || !out.share.all()) ? ranks->count() : 1);
    expect(Part::kUnet, bytes_to_load(UNet(config), out.dtypes[Part::kUnet], out.weights) / dividing);
    out.unet =
        UNet::load(out.load_target(Part::kUnet), config, StoreSource(checkpoint().store(Component::kUnet)),
                   out.dtypes[Part::kUnet], out.weights, out.layers, out.share);
    out.info.parameters += static_cast<uint64_t>(count_parameters(UNet(config)));
    report();
  }

  void load_vae() {
    if (checkpoint().find(Component::kVae) || !checkpoint().find(Component::kTinyVae)) load_full_vae();
    report();
    if (!checkpoint().find(Component::kTinyVae)) return;
    if (options.fast_vae) log().warn("fast-vae: no effect: the tiny VAE decodes");
    load_tiny_vae();
  }

  void load_full_vae() {
    VaeConfig config =
        vae_config(checkpoint().config(Component::kVae), config_title(checkpoint(), Component::kVae));
    require<FormatError>(config.latent_channels == 4 && config.image_channels == 3,
                         config_title(checkpoint(), Component::kVae),
                         ": expected 4 latent and 3 picture channels, got ", config.latent_channels, " and ",
                         config.image_channels);
    config.shift_factor = 0;  // no pipeline of Stable Diffusion reads it in Diffusers
    const bool sdxl = out.is_sdxl();
    if (!sdxl || config.latents_mean.empty() || config.latents_std.empty()) {
      config.latents_mean.clear();
      config.latents_std.clear();
    }
    require<UsageError>(!options.fast_vae || config.channels.size() > 1,
                        "fast-vae: ", config_title(checkpoint(), Component::kVae),
                        " has one level and doubles nothing");
    config.half_size_finest = options.fast_vae;
    expect(Part::kVae, bytes_to_load(VaeDecoder(config), out.dtypes[Part::kVae], out.vae_weights));
    out.vae = VaeDecoder::load(out.load_target(Part::kVae), config,
                               StoreSource(checkpoint().store(Component::kVae)), out.dtypes[Part::kVae],
                               out.vae_weights);
    out.info.parameters += static_cast<uint64_t>(count_parameters(VaeDecoder(config)));
  }

  // In place of the VAE's decoder, or the only VAE that there is.
  void load_tiny_vae() {
    const std::string name = config_title(checkpoint(), Component::kTinyVae);
    TaesdConfig tiny = taesd_config(checkpoint().config(Component::kTinyVae), name);
    tiny.shift_factor = 0;
    require<FormatError>(tiny.latent_channels == 4, name, ": expected 4 latent channels, got ",
                         tiny.latent_channels);
    require<FormatError>(!out.vae || tiny.downscale() == out.downscale(), name, ": doubles the size ",
                         tiny.downscale(), " times over, the model's VAE ", out.vae ? out.downscale() : 0);
    expect(Part::kVae, bytes_to_load(TaesdDecoder(tiny), out.dtypes[Part::kVae]));
    out.tiny_vae =
        TaesdDecoder::load(out.loading_device(Part::kVae), tiny,
                           StoreSource(checkpoint().store(Component::kTinyVae)), out.dtypes[Part::kVae]);
    if (!out.vae) out.info.parameters += static_cast<uint64_t>(count_parameters(TaesdDecoder(tiny)));
  }

  void read_scheduler() {
    out.prediction = checkpoint().prediction();
    const nlohmann::json* json = checkpoint().scheduler_config();
    if (json) {
      const std::filesystem::path& model = checkpoint().path();
      const std::string file =
          checkpoint().is_folder() ? (model / "scheduler/scheduler_config.json").string() : model.string();
      const bool sd = (out.kind == ModelKind::kSd1 || out.kind == ModelKind::kSd2) && !out.is_instruct();
      const DiffusersSchedulerConfig config = read_diffusers_scheduler(
          *json, file, sd ? DiffusersPipeline::kStableDiffusion : DiffusersPipeline::kPlain);
      try {
        NoiseSchedule check(config.noise);
      } catch (const UsageError& e) {
        throw FormatError(concat(printable(file), ": ", e.what()));
      }
      out.noise = config.noise;
      out.sigma_data = config.sigma_data;
      out.sampling_refusal = config.refusal;
      if (config.refusal.empty()) out.native_sampling = config.request;
    } else {
      out.noise.zero_terminal_snr = checkpoint().zero_terminal_snr();
    }
    if (options.prediction != "auto") out.prediction = parse_prediction(options.prediction);
  }

  // Whether the pipeline's class takes no negative prompt for zeros: Diffusers' SDXL classes do unless
  // model_index.json says otherwise, and so does the single file of SDXL's base.
  void read_negative_rule() {
    const bool sdxl = out.is_sdxl();
    const nlohmann::json* index = checkpoint().model_index();
    out.zero_absent_negative = index ? sdxl : out.kind == ModelKind::kSdxl;
    if (!index || !sdxl) return;
    const auto field = index->find("force_zeros_for_empty_prompt");
    if (field == index->end() || field->is_null()) return;
    require<FormatError>(field->is_boolean(),
                         "model_index.json: force_zeros_for_empty_prompt: expected true or false, got ",
                         printable(field->dump(), 80));
    out.zero_absent_negative = field->get<bool>();
  }

  // Models that were distilled to do without guidance say so by their scheduler or by their name alone.
  void recognise_distilled() {
    if (const nlohmann::json* json = checkpoint().scheduler_config()) {
      const std::string name = text_field(*json, "_class_name");
      const bool euler = name == "EulerDiscreteScheduler" || name == "EulerAncestralDiscreteScheduler";
      if (name == "LCMScheduler" || name == "TCDScheduler")
        out.distilled = concat("its scheduler is ", name);
      else if (euler && text_field(*json, "timestep_spacing") == "trailing" &&
               out.prediction == Prediction::kEpsilon)
        out.distilled = concat("its scheduler is ", name, " with trailing timesteps");
    }
    std::string lower;
    for (const char c : out.info.name)
      lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c == '_' || c == ' ' ? '-' : c;
    for (const char* mark : {"turbo", "lightning", "lcm", "hyper-sd", "hypersd", "dmd2"})
      if (out.distilled.empty() && lower.find(mark) != std::string::npos)
        out.distilled = concat("its name has \"", mark, "\" in it");
  }

  void propose() {
    const nlohmann::json* json = checkpoint().scheduler_config();
    ModelInfo& info = out.info;
    const UNetConfig& config = out.unet->config();
    info.proposal = propose_sampling(config, json ? text_field(*json, "_class_name") : "", info.name,
                                     out.native_sampling.has_value() || !out.sampling_refusal.empty());
    if (const std::string smaller = describe_smaller_unet(config, out.kind); !smaller.empty())
      info.notes.push_back(smaller);
    const SamplingProposal& p = info.proposal;
    if (p.reason.empty()) return;
    std::string what = concat("a distilled model (", p.reason, "): where nothing else is asked for, ",
                              p.steps, p.steps == 1 ? " step" : " steps", ", cfg-scale ", p.cfg_scale);
    if (p.sampler != "auto") what += concat(", sampler ", p.sampler);
    if (p.schedule != "auto") what += concat(", schedule ", p.schedule);
    info.notes.push_back(what);
  }

  static std::string text_field(const nlohmann::json& json, const char* name) {
    const auto field = json.find(name);
    return field != json.end() && field->is_string() ? field->get<std::string>() : std::string();
  }

  // Diffusers' sample_size is one number or [height, width].
  void read_default_size() {
    const nlohmann::json& unet = checkpoint().config(Component::kUnet);
    const auto field = unet.find("sample_size");
    const bool pair = field != unet.end() && field->is_array() && field->size() == 2;
    const auto side = [&](size_t i) {
      const nlohmann::json value = field == unet.end() ? nlohmann::json() : pair ? (*field)[i] : *field;
      const int64_t latents = value.is_number_integer() ? value.get<int64_t>() : 64;
      return static_cast<int>(std::clamp<int64_t>(latents, 1, 512) * out.downscale());
    };
    out.info.default_height = side(0);
    out.info.default_width = side(1);
  }

  void describe() {
    ModelInfo& info = out.info;
    const std::filesystem::path path = checkpoint().path();
    info.name = checkpoint().is_folder() ? path.filename().string() : path.stem().string();
    if (info.name.empty()) info.name = path.parent_path().filename().string();  // "models/demo/"
    info.kind = model_kind_name(out.kind);
    const std::string_view variant = unet_variant(out.unet->config().in_channels);
    if (!variant.empty()) info.kind += concat(" ", variant);
    info.device = out.place.describe();
    info.dtype = out.describe_dtype();
    info.weights_id = weights_id(checkpoint());
    info.prediction = prediction_name(out.prediction);
    read_default_size();
    read_negative_rule();
    recognise_distilled();
    info.notes = checkpoint().notes();
    propose();
    if (!checkpoint().is_folder()) out.model_hash = hash_later(path);
    if (!options.vae.empty() && !is_folder_path(options.vae)) out.vae_hash = hash_later(options.vae);
    if (!options.vae.empty()) out.vae_name = std::filesystem::path(options.vae).filename().string();
    const std::vector<std::string> extra = checkpoint().key_report().unexpected;
    if (extra.empty()) return;
    std::string names;
    for (size_t i = 0; i < std::min<size_t>(extra.size(), 5); ++i)
      names += concat(i ? ", " : "", printable(extra[i]));
    info.notes.push_back(
        concat(extra.size(), " tensors of the files are not used: ", names, extra.size() > 5 ? ", ..." : ""));
  }
};

}  // namespace

Components load_components(const LoadOptions& options, const Placement& place, const Callbacks& callbacks,
                           const Ranks* ranks) {
  Components out;
  out.place = place;
  out.device = &place[Part::kUnet];
  for (const Part part : kParts) out.dtypes[part] = part_type(options.dtype, place, part);
  const DType unet = out.dtypes[Part::kUnet], image = out.dtypes[Part::kImage];
  out.weights = parse_weight_format(options.weights, unet);
  out.weights_are_auto = options.weights == "auto";
  out.vae_weights = parse_vae_weight_format(options.vae_weights);
  note_weight_format("weights", out.weights, unet, *out.device);
  note_weight_format("vae-weights", out.vae_weights, out.dtypes[Part::kVae], place[Part::kVae]);
  out.loaded_for_offload = options.offload || options.stream_weights;
  out.image_dtype = text_compute(image, place[Part::kImage]);
  out.image_stored = text_stored(image);
  if (options.prediction != "auto") parse_prediction(options.prediction);
  CheckpointOptions files{.unet = options.unet,
                          .vae = options.vae,
                          .text_encoder = options.text_encoder,
                          .text_encoder_2 = options.text_encoder_2,
                          .tiny_vae = {},
                          .variant = options.variant,
                          .access = options.mmap ? FileAccess::kMap : FileAccess::kRead};
  out.control_files = {options.variant, files.access};
  files.live = live_components(options.live);
  if (!options.taesd.empty()) files.tiny_vae.emplace_back(options.taesd);
  out.checkpoint = Checkpoint::open(options.model, files);
  require_complete(*out.checkpoint);
  out.kind = out.checkpoint->kind();

  Loader loader{options, ranks, callbacks, out};
  const bool first = out.kind != ModelKind::kSdxlRefiner,
             second = out.kind == ModelKind::kSdxl || out.kind == ModelKind::kSdxlRefiner;
  loader.total = 2 + first + second;
  if (first) loader.load_text_encoder(Component::kTextEncoder);
  if (second) loader.load_text_encoder(Component::kTextEncoder2);
  loader.load_unet();
  loader.load_vae();
  loader.read_scheduler();
  loader.describe();
  return out;
}

}  // namespace rocm_sd
