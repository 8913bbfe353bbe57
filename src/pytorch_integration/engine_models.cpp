#include "pytorch_integration/engine_models.hpp"

#include <map>
#include <mutex>

#include "base/json.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "models/unet.hpp"
#include "models/vae.hpp"
#include "pytorch_integration/op_scope.hpp"
#include "runtime/device.hpp"
#include "weights/memory_component.hpp"

namespace rocm_sd::torch_ops {
namespace {

// A module's tensors as the source of an engine model's parameters: nothing is read, all is ready.
class TorchSource final : public ParameterSource {
 public:
  TorchSource(const WeightStore& store, const std::map<std::string, AtTensor, std::less<>>& tensors)
      : store_(store), tensors_(tensors) {}

  std::string title() const override { return store_.title(); }
  bool has(const std::string& name) const override { return store_.has(name); }
  void ignore(const std::string&) const override {}
  void read(const std::string& name, const Shape&, DType, void*) const override {
    throw InternalError(concat(name, ": a live module's tensor is not read"));
  }
  Tensor ready(const ParameterSlot& slot, DType dtype, Device&) const override {
    if (slot.parts.size() == 1) {
      const AtTensor& whole = tensor_of(slot.parts[0]);
      if (dtype_of(whole) == dtype)
        return view_as(with_strides(whole, row_major(sizes_of(whole))), slot.shape);
    }
    const AtTensor stacked = empty_like(tensor_of(slot.parts[0]), slot.shape.numel(), dtype);
    int64_t offset = 0;
    for (const ParameterSlot::Part& part : slot.parts) {
      const AtTensor& from = tensor_of(part);
      const Shape sizes = sizes_of(from), strides = row_major(sizes);
      AtenTensorHandle place = nullptr;
      STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(stacked.get(), sizes.rank(), sizes.begin(),
                                                                   strides.begin(), offset, &place));
      AtTensor to(place);
      STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(to.get(), from.get(), 1));
      offset += sizes.numel();
    }
    return view_as(stacked, slot.shape);
  }

 private:
  const AtTensor& tensor_of(const ParameterSlot::Part& part) const {
    const StoredTensor& stored = store_.at(part.name);
    require(shapes_compatible(stored.shape, part.shape) && !stored.transposed && stored.row_begin == 0,
            part.name, ": expected ", part.shape, ", the module has ", stored.shape);
    return tensors_.at(stored.file_name());
  }
  static AtTensor empty_like(const AtTensor& x, int64_t count, DType dtype) {
    const int32_t code = dtype == DType::kF32   ? aoti_torch_dtype_float32()
                         : dtype == DType::kF16 ? aoti_torch_dtype_float16()
                                                : aoti_torch_dtype_bfloat16();
    const int64_t step = 1;
    int32_t device_type = 0, device_index = 0;
    AtenTensorHandle made = nullptr;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(x.get(), &device_type));
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(x.get(), &device_index));
    STABLE_TORCH_ERROR_CODE_CHECK(
        aoti_torch_empty_strided(1, &count, &step, code, device_type, device_index, &made));
    return AtTensor(made);
  }

  const WeightStore& store_;
  const std::map<std::string, AtTensor, std::less<>>& tensors_;
};

struct EngineUnet {
  UNet unet;
  TextCache text;
  Shape text_shape;
};

struct Entry {       // one of the three
  std::mutex mutex;  // a model serves one call at a time
  std::unique_ptr<EngineUnet> unet;
  std::unique_ptr<VaeDecoder> decoder;
  std::unique_ptr<VaeEncoder> encoder;
};
struct Registry {
  std::mutex mutex;
  int64_t last = 0;
  std::map<int64_t, std::shared_ptr<Entry>> entries;
};
Registry& registry() {
  static auto& instance = *new Registry;
  return instance;
}

int64_t keep(std::shared_ptr<Entry> entry) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.entries.emplace(++all.last, std::move(entry));
  return all.last;
}

std::shared_ptr<Entry> entry_of(int64_t id) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.entries.find(id);
  require<UsageError>(found != all.entries.end(), "no engine model has the number ", id);
  return found->second;
}

// The tensors by name, and what the weights module makes of the names and shapes.
struct Module {
  std::map<std::string, AtTensor, std::less<>> tensors;
  std::optional<LoadedComponent> component;
  DType dtype = DType::kF32;

  Module(const std::vector<AtTensor>& given, const std::string& names, const std::string& config,
         Component kind) {
    require<UsageError>(!given.empty(), "a module without tensors");
    const auto first = dtype_of(given.front());
    take_if(first.has_value(), describe(given.front()), ": the engine takes float32, float16 and bfloat16");
    dtype = *first;
    std::vector<MemoryTensor> listed;
    size_t begin = 0;
    for (const AtTensor& tensor : given) {
      const size_t end = std::min(names.find('\n', begin), names.size());
      require<UsageError>(begin < names.size(), given.size(), " tensors have fewer names");
      const std::string name = names.substr(begin, end - begin);
      begin = end + 1;
      require<UsageError>(same_device(given.front(), tensor), name, " is on another device than the rest");
      const auto dtype_here = dtype_of(tensor);
      take_if(dtype_here.has_value(), name, " ", describe(tensor), ": the engine takes float types");
      listed.push_back({name, *dtype_here, sizes_of(tensor), nullptr});
      tensors.emplace(name, tensor);
    }
    const TensorSet set = TensorSet::of(SafetensorsFile::of_memory("a live module", listed));
    std::optional<nlohmann::json> json;
    if (!config.empty()) json = parse_json(config, {}, "config of the module");
    component = component_in_memory(set, kind, std::move(json));
  }
  TorchSource source() const { return {component->store, tensors}; }
};

VaeConfig half_config(const nlohmann::json& json) {
  VaeConfig config = vae_config(json, "config of the module");
  config.quant_conv = config.post_quant_conv = false;  // the caller's
  config.scaling_factor = 1;                           // latents come and go as the modules have them
  config.shift_factor = 0;
  return config;
}

Tensor optional_rows(const OptionalAt& x) { return x ? row_major_of(*x) : Tensor(); }

}  // namespace

int64_t new_engine_unet(std::vector<AtTensor> tensors, std::string names, std::string config) {
  const Module module(tensors, names, config, Component::kUnet);
  OpScope scope(tensors.front());
  Device& device = scope.on_host() ? host_device() : scope.exec().device();
  const auto entry = std::make_shared<Entry>();
  const UNetConfig shape = unet_config(*module.component->config, "config of the module");
  entry->unet = std::make_unique<EngineUnet>(
      EngineUnet{UNet::load(device, shape, module.source(), module.dtype), {}, {}});
  return keep(entry);
}

int64_t new_engine_vae(std::vector<AtTensor> tensors, std::string names, std::string config,
                       std::string half) {
  require<UsageError>(half == "decoder" || half == "encoder", "half '", printable(half),
                      "': expected decoder or encoder");
  const Module module(tensors, names, config, Component::kVae);
  const VaeConfig shape = half_config(*module.component->config);
  OpScope scope(tensors.front());
  Device& device = scope.on_host() ? host_device() : scope.exec().device();
  const auto entry = std::make_shared<Entry>();
  const TorchSource source = module.source();
  if (half == "decoder")
    entry->decoder = std::make_unique<VaeDecoder>(VaeDecoder::load(device, shape, source, module.dtype));
  else
    entry->encoder = std::make_unique<VaeEncoder>(VaeEncoder::load(device, shape, source, module.dtype));
  return keep(entry);
}

void drop_engine_model(int64_t id) {
  std::shared_ptr<Entry> last;  // freed after the lock is gone
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (auto node = all.entries.extract(id)) last = std::move(node.mapped());
}

AtTensor engine_unet(int64_t id, AtTensor sample, AtTensor timestep, AtTensor text, OptionalAt text_embeds,
                     OptionalAt time_ids, OptionalAt guidance, bool same_text) {
  constexpr const char* kOp = "rocm_sd::_engine_unet";
  const auto entry = entry_of(id);
  check(sample.dim() == 4 && text.dim() == 3 && timestep.dim() == 1 && sample.size(0) == text.size(0) &&
            sample.size(0) == timestep.size(0),
        kOp, ": expected sample [N,C,H,W], timestep [N] and text [N,T,W], got ", describe(sample), ", ",
        describe(timestep), " and ", describe(text));
  check_alike(kOp, sample, text, "text");
  check_alike(kOp, sample, timestep, "timestep", false);
  for (const auto& [tensor, name] : {std::pair{&text_embeds, "text_embeds"}, std::pair{&time_ids, "time_ids"},
                                     std::pair{&guidance, "guidance"}})
    if (*tensor) check_alike(kOp, sample, **tensor, name, false);
  require<UsageError>(entry->unet != nullptr, kOp, ": the number ", id, " is no UNet's");
  OpScope scope(sample);
  const std::lock_guard lock(entry->mutex);
  EngineUnet& model = *entry->unet;
  Exec& exec = scope.exec();
  const Shape text_shape = sizes_of(text);
  if (!same_text || !(model.text_shape == text_shape)) {
    if (!(model.text_shape == text_shape)) {
      Device& device = scope.on_host() ? host_device() : exec.device();
      model.text = model.unet.make_text_cache(device, text_shape[0], text_shape[1]);
    }
    model.text_shape = Shape();  // valid only once it is filled
    model.unet.prepare_text(exec, row_major_of(text), model.text);
    model.text_shape = text_shape;
  }
  const TimeInputs time{row_major_of(timestep), optional_rows(text_embeds), optional_rows(time_ids),
                        optional_rows(guidance)};
  const Tensor prediction = model.unet(exec, nhwc_of(sample), time, model.text);  // of bf16's models f32
  const DType dtype = *dtype_of(sample);
  return scope.give_nchw(prediction.dtype() == dtype ? prediction : cast(exec, prediction, dtype));
}

AtTensor engine_vae(int64_t id, AtTensor x, int64_t bands) {
  const auto entry = entry_of(id);
  check(x.dim() == 4, "rocm_sd::_engine_vae: expected [N,C,H,W], got ", describe(x));
  check(bands >= 1 && bands <= x.size(2), "rocm_sd::_engine_vae: ", bands, " bands of ", x.size(2), " rows");
  OpScope scope(x);
  const std::lock_guard lock(entry->mutex);
  Exec& exec = scope.exec();
  if (entry->encoder) return scope.give_nchw(entry->encoder->moments(exec, nhwc_of(x)));
  const VaeDecoder* decoder = entry->decoder.get();
  require<UsageError>(decoder != nullptr, "rocm_sd::_engine_vae: the number ", id, " is no VAE's");
  const Tensor latents = nhwc_of(x);  // [N,h,w,C]
  if (bands == 1) return scope.give_nchw((*decoder)(exec, latents));
  const int64_t scale = decoder->config().downscale();
  const Tensor pictures = exec.alloc(
      {x.size(0), scale * x.size(2), scale * x.size(3), decoder->config().image_channels}, decoder->dtype());
  for (int64_t n = 0; n < x.size(0); ++n)
    decoder->decode_in_bands(exec, latents.narrow(0, n, 1), bands, [&](const Tensor& band, int64_t row) {
      copy_into(exec, band, pictures.narrow(0, n, 1).narrow(1, row, band.dim(1)));
    });
  return scope.give_nchw(pictures);
}

}  // namespace rocm_sd::torch_ops
