#include "pytorch_integration/engine_models.hpp"

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "models/vae.hpp"
#include "pytorch_integration/engine_unet.hpp"
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
  bool readable() const override { return false; }
  void read(const std::string& name, const Shape&, DType, void*) const override {
    throw InternalError(concat(name, ": a live module's tensor is not read"));
  }
  Tensor ready(const ParameterSlot& slot, DType dtype, Device&) const override {
    if (slot.parts.size() == 1) {
      const AtTensor& whole = tensor_of(slot.parts[0]);
      if (dtype_of(whole) == dtype)
        return view_as(with_strides(whole, row_major(sizes_of(whole))), slot.shape);
    }
    const AtTensor stacked =
        empty_strided_of(tensor_of(slot.parts[0]), dtype, slot.shape, row_major(slot.shape));
    int64_t offset = 0;
    for (const ParameterSlot::Part& part : slot.parts) {
      const AtTensor& from = tensor_of(part);
      const Shape sizes = sizes_of(from), strides = row_major(sizes);
      AtenTensorHandle place = nullptr;
      check_torch(aoti_torch__reinterpret_tensor(stacked.get(), sizes.rank(), sizes.begin(), strides.begin(),
                                                 offset, &place),
                  "reinterpret_tensor");
      AtTensor to(place);
      check_torch(aoti_torch_copy_(to.get(), from.get(), 1), "copy_");
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

  const WeightStore& store_;
  const std::map<std::string, AtTensor, std::less<>>& tensors_;
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
    take_if(first.has_value(), shown(given.front()), ": the engine takes float32, float16 and bfloat16");
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
      take_if(dtype_here.has_value(), name, " ", shown(tensor), ": the engine takes float types");
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

// latents [N,h,w,C]
AtTensor decode(OpScope& scope, const VaeDecoder& decoder, const Tensor& latents, int64_t bands) {
  Exec& exec = scope.exec();
  if (bands == 1) return scope.give_nchw(decoder(exec, latents));
  const int64_t scale = decoder.config().downscale(), images = latents.dim(0);
  const Tensor pictures =
      exec.alloc({images, scale * latents.dim(1), scale * latents.dim(2), decoder.config().image_channels},
                 decoder.dtype());
  for (int64_t n = 0; n < images; ++n)
    decoder.decode_in_bands(exec, latents.narrow(0, n, 1), bands, [&](const Tensor& band, int64_t row) {
      copy_into(exec, band, pictures.narrow(0, n, 1).narrow(1, row, band.dim(1)));
    });
  return scope.give_nchw(pictures);
}

// What no kernel takes is the module's own work: Python knows it by how the message begins.
template <class Run>
AtTensor or_decline(const Run& run) {
  const auto declines = [](const Error& why) { return Declined(concat("rocm-sd declines: ", why.what())); };
  try {
    return run();
  } catch (const Declined& why) {
    throw declines(why);
  } catch (const UsageError& why) {  // what select() throws
    throw declines(why);
  }
}

}  // namespace

int64_t new_engine_unet(std::vector<AtTensor> tensors, std::string names, std::string config) {
  const Module module(tensors, names, config, Component::kUnet);
  OpScope scope(tensors.front());
  Device& device = scope.on_host() ? host_device() : scope.exec().device();
  const auto entry = std::make_shared<Entry>();
  const UNetConfig shape = unet_config(*module.component->config, "config of the module");
  entry->unet = std::make_unique<EngineUnet>(UNet::load(device, shape, module.source(), module.dtype));
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
                     OptionalAt time_ids, OptionalAt guidance, bool same_text, int64_t mode) {
  constexpr const char* kOp = "rocm_sd::_engine_unet";
  const auto entry = entry_of(id);
  check(sample.dim() == 4 && text.dim() == 3 && timestep.dim() == 1 && sample.size(0) == text.size(0) &&
            sample.size(0) == timestep.size(0),
        kOp, ": expected sample [N,C,H,W], timestep [N] and text [N,T,W], got ", shown(sample), ", ",
        shown(timestep), " and ", shown(text));
  check_alike(kOp, sample, text, "text");
  check_alike(kOp, sample, timestep, "timestep", false);
  for (const auto& [tensor, name] : {std::pair{&text_embeds, "text_embeds"}, std::pair{&time_ids, "time_ids"},
                                     std::pair{&guidance, "guidance"}})
    if (*tensor) check_alike(kOp, sample, **tensor, name, false);
  require<UsageError>(entry->unet != nullptr, kOp, ": the number ", id, " is no UNet's");
  require<UsageError>(mode >= 0 && mode <= static_cast<int64_t>(ForwardMode::kPrepared), kOp, ": mode ",
                      mode);
  return or_decline([&] {
    OpScope scope(sample);
    const std::lock_guard lock(entry->mutex);
    const UnetInputs inputs{sample, timestep, text, text_embeds, time_ids, guidance, same_text};
    return entry->unet->run(scope, inputs, static_cast<ForwardMode>(mode));
  });
}

AtTensor engine_vae(int64_t id, AtTensor x, int64_t bands) {
  const auto entry = entry_of(id);
  check(x.dim() == 4, "rocm_sd::_engine_vae: expected [N,C,H,W], got ", shown(x));
  check(bands >= 1 && bands <= x.size(2), "rocm_sd::_engine_vae: ", bands, " bands of ", x.size(2), " rows");
  require<UsageError>(entry->unet == nullptr, "rocm_sd::_engine_vae: the number ", id, " is no VAE's");
  return or_decline([&] {
    OpScope scope(x);
    const std::lock_guard lock(entry->mutex);
    return entry->encoder ? scope.give_nchw(entry->encoder->moments(scope.exec(), nhwc_of(x)))
                          : decode(scope, *entry->decoder, nhwc_of(x), bands);
  });
}

}  // namespace rocm_sd::torch_ops
