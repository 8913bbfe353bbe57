// model_main: runs one model of a folder on given tensors, for comparison with Diffusers and transformers.
//   model_main KIND FOLDER INPUTS.safetensors OUTPUTS.safetensors [f32|bf16]
// KIND: clip, vision (transformers' folder), unet, ip-adapter (with ip.0.safetensors, ... in FOLDER),
// controlnet and t2i (with control/ in FOLDER), vae-decoder, vae-encoder, taesd-decoder, taesd-encoder.
// FOLDER holds config.json and model.safetensors with canonical names. Writes every tap as "tap.<name>", the
// results of an eager run
// ("output", ...), and those of a planned and replayed one ("replayed.output", ...), all f32.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "models/clip.hpp"
#include "models/controlnet.hpp"
#include "models/ip_adapter.hpp"
#include "models/store_source.hpp"
#include "models/t2i_adapter.hpp"
#include "models/taesd.hpp"
#include "models/unet.hpp"
#include "models/vae.hpp"
#include "weights/ip_adapter_weights.hpp"
#include "weights/safetensors.hpp"

namespace rocm_sd {
namespace {

// A safetensors file whose names are the canonical ones.
class FileSource final : public ParameterSource {
 public:
  explicit FileSource(const std::filesystem::path& path) : file_(SafetensorsFile::open(path)) {}
  std::string title() const override { return file_->path().string(); }
  bool has(const std::string& name) const override { return file_->find(name) != nullptr; }
  void read(const std::string& name, const Shape& shape, DType dtype, void* dst) const override {
    const TensorEntry& entry = *file_->find(name);
    require(entry.numel() == shape.numel() && entry.shape[0] == shape[0], title(), ": ", name, ": expected ",
            shape, ", the file has ", entry.shape);
    std::vector<char> stored(entry.bytes);
    file_->read(entry, 0, entry.bytes, stored.data());
    convert_elements(stored.data(), entry.dtype, dst, dtype, entry.numel());
  }
  void ignore(const std::string&) const override {}

  // A tensor as it is, floats as f32 and integers as i32; empty where there is none.
  Tensor tensor(const std::string& name) const {
    const TensorEntry* entry = file_->find(name);
    if (!entry) return {};
    const DType dtype = is_float(entry->dtype) ? DType::kF32 : DType::kI32;
    Tensor out = make_tensor(host_device(), entry->shape, dtype);
    std::vector<char> stored(entry->bytes);
    file_->read(*entry, 0, entry->bytes, stored.data());
    convert_elements(stored.data(), entry->dtype, out.data(), dtype, entry->numel());
    return out;
  }
  int64_t integer(const std::string& name) const { return *tensor(name).as<int32_t>(); }

 private:
  std::shared_ptr<const SafetensorsFile> file_;
};

using Results = std::map<std::string, Tensor>;
// Runs a forward; taps only if told.
using Forward = std::function<Results(Exec&, const Tap*)>;

struct Job {
  Device& device = host_device();
  nlohmann::json config;
  FileSource weights, inputs;
  DType dtype;
};

// A persistent f32 copy of an input in the compute dtype.
Tensor input(const Job& job, const std::string& name) {
  const Tensor values = job.inputs.tensor(name);
  require(static_cast<bool>(values), "model_main: there is no input '", name, "'");
  return tensor_from(job.device, values.shape(), values.as<float>(), job.dtype);
}

Forward clip_forward(const Job& job) {
  auto model = std::make_shared<ClipTextModel>(
      ClipTextModel::load(job.device, clip_config(job.config, "config.json"), job.weights, job.dtype));
  const Tensor ids = job.inputs.tensor("ids");
  const std::span<const int32_t> host(ids.as<int32_t>(), static_cast<size_t>(ids.numel()));
  check_ids(model->config(), host);
  const std::vector<int32_t> rows = pooled_rows(model->config(), host, ids.dim(1));
  const Tensor picked = make_tensor(job.device, {static_cast<int64_t>(rows.size()), 1}, DType::kI32);
  job.device.copy_to_device(picked.data(), rows.data(), picked.bytes());
  const auto skip = static_cast<int>(job.inputs.integer("skip"));
  const bool final_norm = job.inputs.integer("final_norm") != 0;
  return [=](Exec& ex, const Tap* tap) -> Results {
    const ClipOutput out =
        (*model)(ex, ids, {.skip = skip, .final_norm = final_norm, .pooled_rows = &picked, .tap = tap});
    return {{"output", out.states}, {"pooled", out.pooled}};
  };
}

Forward unet_forward(const Job& job) {
  auto model = std::make_shared<UNet>(
      UNet::load(job.device, unet_config(job.config, "config.json"), job.weights, job.dtype));
  const Tensor latents = input(job, "latents"), context = input(job, "context");
  const TextCache cache = model->make_text_cache(job.device, context.dim(0), context.dim(1));
  const TimeInputs time{job.inputs.tensor("timestep"),
                        job.inputs.tensor("text_embeds"),
                        job.inputs.tensor("time_ids"),
                        job.inputs.tensor("guidance_cond"),
                        {}};
  std::optional<UNetSkips> residuals;  // "residual.0", ..., "residual.middle", or none
  if (job.inputs.has("residual.middle")) {
    residuals.emplace().middle = input(job, "residual.middle");
    for (int i = 0; job.inputs.has(concat("residual.", i)); ++i)
      residuals->skips.push_back(input(job, concat("residual.", i)));
  }
  return [=](Exec& ex, const Tap* tap) -> Results {
    model->prepare_text(ex, context, cache);
    return {{"output", (*model)(ex, latents, time, cache,
                                {.tap = tap, .residuals = residuals ? &*residuals : nullptr})}};
  };
}

// The folder's UNet with the ControlNet in control/, and with the inputs "residual.0", ... of another one's.
Forward controlnet_forward(const Job& job, const std::filesystem::path& folder) {
  auto unet = std::make_shared<UNet>(
      UNet::load(job.device, unet_config(job.config, "config.json"), job.weights, job.dtype));
  auto control = std::make_shared<ControlNet>(ControlNet::load(
      job.device, controlnet_config(parse_json_file(folder / "control/config.json"), "config.json"),
      FileSource(folder / "control/model.safetensors"), job.dtype));
  const Tensor latents = input(job, "latents"), context = input(job, "context");
  const TextCache cache = unet->make_text_cache(job.device, context.dim(0), context.dim(1));
  const TextCache own = control->trunk().make_text_cache(job.device, context.dim(0), context.dim(1));
  const TimeInputs time{
      job.inputs.tensor("timestep"), job.inputs.tensor("text_embeds"), job.inputs.tensor("time_ids"), {}, {}};
  // "picture", or of a union ControlNet "picture.0" with "type.0" and "scale.0", ... and "types".
  std::vector<Tensor> pictures;
  std::vector<Tensor> kinds, scales;
  const bool several = job.inputs.has("picture.0");
  for (int i = 0; several ? job.inputs.has(concat("picture.", i)) : i < 1; ++i) {
    pictures.push_back(job.inputs.tensor(several ? concat("picture.", i) : "picture"));
    kinds.push_back(job.inputs.tensor(concat("type.", i)));
    scales.push_back(job.inputs.tensor(concat("scale.", i)));
  }
  const Tensor factors = job.inputs.tensor("factors"), types = job.inputs.tensor("types");
  return [=](Exec& ex, const Tap* tap) -> Results {
    unet->prepare_text(ex, context, cache);
    control->trunk().prepare_text(ex, context, own);
    const Tensor shifts = unet->time_shifts(ex, time);
    UNetSkips skips = unet->encode(ex, latents, shifts, cache);
    std::vector<Tensor> each;
    for (int64_t i = 0; i < factors.dim(0); ++i)
      each.push_back(factors.narrow(0, i, 1).reshape({factors.dim(1)}));
    Tensor hint;
    for (size_t i = 0; i < pictures.size(); ++i) {
      Tensor one = control->hint(ex, pictures[i]);
      if (types) one = control->weigh(ex, one, kinds[i], scales[i]);
      hint = hint ? add(ex, hint, one) : one;
    }
    TimeInputs own_time = time;
    if (types) own_time.added = control->type_embedding(ex, types);
    (*control)(ex, latents, hint, control->trunk().time_shifts(ex, own_time), own, each, skips, tap);
    return {{"output", unet->decode(ex, std::move(skips), shifts, cache)}};
  };
}

// The folder's UNet with the T2I-Adapter in control/.
Forward adapter_forward(const Job& job, const std::filesystem::path& folder) {
  auto unet = std::make_shared<UNet>(
      UNet::load(job.device, unet_config(job.config, "config.json"), job.weights, job.dtype));
  auto adapter = std::make_shared<T2iAdapter>(
      T2iAdapter::load(job.device, t2i_config(parse_json_file(folder / "control/config.json"), "config.json"),
                       FileSource(folder / "control/model.safetensors"), job.dtype));
  const Tensor latents = input(job, "latents"), context = input(job, "context");
  const TextCache cache = unet->make_text_cache(job.device, context.dim(0), context.dim(1));
  const TimeInputs time{
      job.inputs.tensor("timestep"), job.inputs.tensor("text_embeds"), job.inputs.tensor("time_ids"), {}, {}};
  const Tensor picture = job.inputs.tensor("picture"), factors = job.inputs.tensor("factors");  // [B]
  const int64_t batch = picture.dim(0), height = picture.dim(1), width = picture.dim(2);
  const int64_t d = adapter->config().downscale, size = height * width * 3;
  std::vector<float> squares;
  for (int64_t n = 0; n < batch; ++n) {
    const float* from = picture.as<float>() + n * size;
    const std::vector<float> one = adapter->unshuffled({from, from + size}, height, width);
    squares.insert(squares.end(), one.begin(), one.end());
  }
  const int64_t channels = static_cast<int64_t>(squares.size()) * d * d / (batch * height * width);
  const Tensor seen = tensor_from(job.device, {batch, height / d, width / d, channels}, squares.data());
  return [=](Exec& ex, const Tap* tap) -> Results {
    unet->prepare_text(ex, context, cache);
    std::vector<std::vector<ScaledMap>> additions(unet->config().down.size() + 1);
    const std::vector<Tensor> maps = (*adapter)(ex, seen, unet->input_dtype(), tap);
    for (size_t i = 0; i < maps.size(); ++i) additions[i].push_back({maps[i], factors});
    return {{"output", (*unet)(ex, latents, time, cache, {.additions = &additions})}};
  };
}

Forward vision_forward(const Job& job, const std::filesystem::path& folder) {
  const ImageEncoderWeights opened = open_image_encoder(folder);
  const ClipVisionConfig config = clip_vision_config(*opened.config, "config.json");
  auto model = std::make_shared<ClipVisionModel>(
      ClipVisionModel::load(job.device, config, StoreSource(opened.store), job.dtype, job.dtype));
  const Tensor pixels = job.inputs.tensor("pixels");
  return [=](Exec& ex, const Tap* tap) -> Results {
    return {{"states", (*model)(ex, pixels, VisionResult::kStates)},
            {"output", (*model)(ex, pixels, VisionResult::kEmbedding, tap)}};
  };
}

// The folder's UNet with adapters, each over "image.N" [B*images,...], its factors "factors.N" [B].
Forward ip_adapter_forward(const Job& job, const std::filesystem::path& folder) {
  auto unet = std::make_shared<UNet>(
      UNet::load(job.device, unet_config(job.config, "config.json"), job.weights, job.dtype));
  struct Used {
    std::shared_ptr<IpAdapter> adapter;
    Tensor images, factors;
  };
  std::vector<Used> used;
  for (int i = 0; job.inputs.has(concat("image.", i)); ++i) {
    const WeightStore store = open_ip_adapter(folder / concat("ip.", i, ".safetensors"));
    const IpAdapterConfig config = ip_adapter_config(store);
    const std::string refusal = ip_adapter_refusal(config, *unet);
    require(refusal.empty(), refusal);
    used.push_back({std::make_shared<IpAdapter>(config, unet->image_attentions()),
                    input(job, concat("image.", i)), job.inputs.tensor(concat("factors.", i))});
    used.back().adapter->load(job.device, StoreSource(store), job.dtype, job.dtype);
  }
  const Tensor latents = input(job, "latents"), context = input(job, "context");
  const int64_t batch = context.dim(0);
  const TextCache cache = unet->make_text_cache(job.device, batch, context.dim(1));
  const TimeInputs time{
      job.inputs.tensor("timestep"), job.inputs.tensor("text_embeds"), job.inputs.tensor("time_ids"), {}, {}};
  return [=](Exec& ex, const Tap* tap) -> Results {
    unet->prepare_text(ex, context, cache);
    Results out;
    std::vector<ImageTokens> images;
    for (size_t i = 0; i < used.size(); ++i) {
      const IpAdapter& adapter = *used[i].adapter;
      const Tensor each = adapter.projection()(ex, used[i].images);  // [B*images,T,C]
      const Tensor tokens = each.reshape({batch, each.numel() / (batch * each.dim(2)), each.dim(2)});
      out[concat("tokens.", i)] = tokens;
      ImageTokens& own = images.emplace_back();
      for (size_t layer = 0; layer < adapter.layers().size(); ++layer) {
        own.keys_values.push_back(adapter.keys_values(ex, tokens, layer));
        own.factors.push_back(used[i].factors);
      }
    }
    out["output"] = (*unet)(ex, latents, time, cache, {.tap = tap, .images = &images});
    return out;
  };
}

Forward vae_forward(const Job& job, bool decode) {
  const VaeConfig config = vae_config(job.config, "config.json");
  if (decode) {
    auto model = std::make_shared<VaeDecoder>(VaeDecoder::load(job.device, config, job.weights, job.dtype));
    const Tensor latents = job.inputs.tensor("latents");
    return [=](Exec& ex, const Tap* tap) -> Results { return {{"output", (*model)(ex, latents, tap)}}; };
  }
  auto model = std::make_shared<VaeEncoder>(VaeEncoder::load(job.device, config, job.weights, job.dtype));
  const Tensor picture = job.inputs.tensor("picture"), noise = job.inputs.tensor("noise");
  return [=](Exec& ex, const Tap* tap) -> Results {
    return {{"moments", model->moments(ex, picture, tap)},
            {"mode", (*model)(ex, picture)},
            {"output", (*model)(ex, picture, &noise)}};
  };
}

Forward taesd_forward(const Job& job, bool decode) {
  const TaesdConfig config = taesd_config(job.config, "config.json");
  if (decode) {
    auto model =
        std::make_shared<TaesdDecoder>(TaesdDecoder::load(job.device, config, job.weights, job.dtype));
    const Tensor latents = job.inputs.tensor("latents");
    return [=](Exec& ex, const Tap* tap) -> Results { return {{"output", (*model)(ex, latents, tap)}}; };
  }
  auto model = std::make_shared<TaesdEncoder>(TaesdEncoder::load(job.device, config, job.weights, job.dtype));
  const Tensor picture = job.inputs.tensor("picture");
  return [=](Exec& ex, const Tap* tap) -> Results { return {{"output", (*model)(ex, picture, tap)}}; };
}

Forward forward_of(const std::string& kind, const Job& job, const std::filesystem::path& folder) {
  if (kind == "clip") return clip_forward(job);
  if (kind == "unet") return unet_forward(job);
  if (kind == "controlnet") return controlnet_forward(job, folder);
  if (kind == "t2i") return adapter_forward(job, folder);
  if (kind == "vision") return vision_forward(job, folder);
  if (kind == "ip-adapter") return ip_adapter_forward(job, folder);
  if (kind.starts_with("vae-")) return vae_forward(job, kind == "vae-decoder");
  if (kind.starts_with("taesd-")) return taesd_forward(job, kind == "taesd-decoder");
  throw UsageError(concat("model_main: unknown kind ", kind));
}

Tensor to_f32(const Tensor& tensor) {
  const std::vector<float> values = to_floats(host_device(), tensor);
  return tensor_from(host_device(), tensor.shape(), values.data());
}

Results run_eager(const Forward& forward) {
  Arena arena(host_device());
  Exec ex(arena);
  Results out;
  const Tap tap = [&](const std::string& name, const Tensor& value) { out["tap." + name] = to_f32(value); };
  for (const auto& [name, value] : forward(ex, &tap)) out[name] = to_f32(value);
  return out;
}

// Plans, captures and replays; the memory of the results is made in the dry run.
Results run_replayed(const Forward& forward) {
  Arena arena(host_device());
  Results out;
  Program program("model", arena, [&](Exec& ex) {
    for (const auto& [name, value] : forward(ex, nullptr)) {
      Tensor& target = out["replayed." + name];
      if (!target) target = make_tensor(host_device(), value.shape(), DType::kF32);
      copy_into(ex, value, target);
    }
  });
  program.run();  // captures
  for (const auto& [name, target] : out) std::memset(target.data(), 0xff, target.bytes());
  program.run();  // replays
  return out;
}

void write(const std::filesystem::path& path, const Results& results) {
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, value] : results)
    tensors.push_back({name, DType::kF32, value.shape(), [value](uint64_t offset, uint64_t bytes, void* dst) {
                         std::memcpy(dst, static_cast<const char*>(value.data()) + offset, bytes);
                       }});
  write_safetensors(path, std::move(tensors), {});
}

void run(int argc, char** argv) {
  require<UsageError>(argc >= 5, "usage: model_main KIND FOLDER INPUTS OUTPUTS [f32|bf16]");
  const std::filesystem::path folder = argv[2];
  const Job job{.config = parse_json_file(folder / "config.json"),
                .weights = FileSource(folder / "model.safetensors"),
                .inputs = FileSource(argv[3]),
                .dtype = argc > 5 && std::string(argv[5]) == "bf16" ? DType::kBF16 : DType::kF32};
  const Forward forward = forward_of(argv[1], job, folder);
  Results results = run_eager(forward);
  results.merge(run_replayed(forward));
  write(argv[4], results);
}

}  // namespace
}  // namespace rocm_sd

int main(int argc, char** argv) {
  try {
    rocm_sd::run(argc, argv);
    return 0;
  } catch (const rocm_sd::Error& e) {
    fmt::print(stderr, "model_main: {}\n", e.what());
    return static_cast<int>(e.exit_code());
  }
}
