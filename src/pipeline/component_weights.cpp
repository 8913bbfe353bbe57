// Weights of loaded components that are read again: another compute type, adapters that came or went.
#include <algorithm>

#include "base/error.hpp"
#include "base/file.hpp"
#include "models/store_source.hpp"
#include "pipeline/components.hpp"

namespace rocm_sd {

DType Components::dtype_of(Part part) const {
  switch (part) {
    case Part::kText: return text.front().model.dtype();
    case Part::kImage: return image_dtype;
    case Part::kUnet: return unet->dtype();
    case Part::kVae: return vae ? vae->dtype() : tiny_vae->dtype();
  }
  return dtypes[part];
}

// A component's tensors with the adapters at work merged into them.
class Components::Source {
 public:
  Source(const Components& components, Component component, DeviceMerge* merge = nullptr)
      : originals_(components.checkpoint->store(component), *components.originals),
        adapted_(originals_, component, adapter_uses(components.adapters, component), merge, &originals_) {}
  operator const ParameterSource&() const { return adapted_; }
  const OriginalSource& originals() const { return originals_; }

 private:
  OriginalSource originals_;
  AdaptedSource adapted_;
};

void Components::update(Part part, const std::vector<ActiveAdapter>& before, Device& to) {
  const auto update_one = [&](Component component, const auto& read) {
    const std::vector<AdapterUse> old_uses = adapter_uses(before, component),
                                  uses = adapter_uses(adapters, component);
    DeviceMerge merge(bases, component, old_uses, uses, place[part]);
    const Source source(*this, component, &merge);
    const auto changed_by = [&](const std::vector<AdapterUse>& adapters, const ParameterSlot& slot) {
      return std::any_of(slot.parts.begin(), slot.parts.end(), [&](const ParameterSlot::Part& tensor) {
        return any_changes(adapters, component, tensor.name);
      });
    };
    std::vector<ParameterSlot> restored;
    read(source, [&](const ParameterSlot& slot) {
      const bool changes = changed_by(uses, slot), changed = changed_by(old_uses, slot);
      if (changed && !changes) restored.push_back(slot);
      return changed || changes;
    });
    for (const ParameterSlot& slot : restored) source.originals().release(slot);
  };
  if (part == Part::kUnet)
    update_one(Component::kUnet, [&](const Source& source, const SlotFilter& only) {
      unet->update({to, place[part]}, source, weights, only);
    });
  if (part == Part::kText)
    for (TextEncoder& encoder : text)
      update_one(encoder.component, [&](const Source& source, const SlotFilter& only) {
        encoder.model.update(to, source, only);
      });
  stale_terms_[part] = true;
}

void Components::reload(Part part, DType compute) {
  Device& to = loading_device(part);
  const auto source = [this](Component component) { return Source(*this, component); };
  switch (part) {
    case Part::kText:
      for (TextEncoder& encoder : text) {
        bases.drop(encoder.component);
        const ClipConfig config = encoder.model.config();
        const DType stored = compute == encoder.model.dtype() ? encoder.model.stored() : compute;
        encoder.model = ClipTextModel(config);  // the old weights go first: both need not fit
        encoder.model = ClipTextModel::load(to, config, source(encoder.component), compute, stored);
      }
      break;
    case Part::kImage:
      image_stored = compute == image_dtype ? image_stored : compute;
      image_dtype = compute;
      for (const auto& model : image_models) load_image_model(*model);
      break;
    case Part::kUnet: {
      bases.drop(Component::kUnet);
      const UNetConfig config = unet->config();
      *unet = UNet(config);
      *unet =
          UNet::load(load_target(part), config, source(Component::kUnet), compute, weights, layers, share);
      for (const auto& control : controls) load_control(*control);
      break;
    }
    case Part::kVae: {
      const bool had_encoder = has_encoder();
      loaded_encoder.reset();
      loaded_tiny_encoder.reset();
      if (vae) {
        const VaeConfig config = vae->config();
        *vae = VaeDecoder(config);
        *vae = VaeDecoder::load(load_target(part), config, source(Component::kVae), compute, vae_weights);
      }
      if (tiny_vae) {
        const TaesdConfig tiny = tiny_vae->config();
        *tiny_vae = TaesdDecoder(tiny);
        *tiny_vae = TaesdDecoder::load(to, tiny, source(Component::kTinyVae), compute);
      }
      if (had_encoder) need_encoder();
      break;
    }
  }
  stale_terms_[part] = true;
  info.dtype = describe_dtype();
}

std::shared_ptr<LoadedControl> Components::find_control(const std::filesystem::path& path) const {
  std::error_code error;
  const auto changed = std::filesystem::last_write_time(path, error);
  for (const auto& control : controls)
    if (control->path == path && control->changed == changed) return control;
  return open_control(path, *checkpoint, unet->config(), downscale(), control_files);
}

void Components::load_control(LoadedControl& control) const {
  control.load(load_target(Part::kUnet), dtype_of(Part::kUnet), weights, unet->input_dtype());
}

namespace {

std::shared_ptr<LoadedImageModel> loaded_from(const std::vector<std::shared_ptr<LoadedImageModel>>& models,
                                              const std::filesystem::path& path, bool adapter) {
  std::error_code error;
  const auto changed = std::filesystem::last_write_time(path, error);
  for (const auto& model : models)
    if (model->path == path && model->changed == changed && (model->adapter() != nullptr) == adapter)
      return model;
  return nullptr;
}

}  // namespace

std::shared_ptr<LoadedImageModel> Components::find_adapter(const std::filesystem::path& path) const {
  if (auto known = loaded_from(image_models, path, true)) return known;
  return open_adapter_model(path, kind, *unet, {control_files.variant, control_files.access});
}

std::shared_ptr<LoadedImageModel> Components::find_encoder(const std::filesystem::path& path) const {
  if (auto known = loaded_from(image_models, path, false)) return known;
  return open_encoder_model(path, {control_files.variant, control_files.access});
}

std::shared_ptr<LoadedImageModel> Components::encoder_of(const LoadedImageModel& adapter,
                                                         const std::string& asked) const {
  if (!asked.empty()) {
    auto encoder = find_encoder(asked);
    const std::string refusal = encoder_refusal(*adapter.adapter(), *encoder->encoder());
    require<UsageError>(refusal.empty(), "image-encoder: ", printable(asked), ": none for ",
                        printable(adapter.name), ": ", refusal);
    return encoder;
  }
  std::string tried;
  for (const std::filesystem::path& place : encoder_places(adapter.path, *checkpoint)) {
    tried += concat(tried.empty() ? "" : "; ", printable(place.native()), ": ");
    if (!path_exists(place)) {
      tried += "no such folder";
      continue;
    }
    auto encoder = find_encoder(place);
    const std::string refusal = encoder_refusal(*adapter.adapter(), *encoder->encoder());
    if (refusal.empty()) return encoder;
    tried += refusal;
  }
  const ImageProjectionConfig& reads = adapter.adapter()->config().projection;
  throw UsageError(
      concat("image-encoder: ", printable(adapter.name), " reads ",
             reads.reads_states() ? "states " : "embeddings ", reads.in_width,
             " wide: expected an image encoder (--image-encoder) that gives them, found none: ", tried));
}

void Components::load_image_model(LoadedImageModel& model) const {
  model.load(loading_device(Part::kImage), image_dtype, image_stored);
}

std::string Components::describe_dtype() const {
  std::string types(dtype_name(dtype_of(Part::kUnet)));
  if (dtype_of(Part::kText) != unet->dtype()) types += concat(", text ", dtype_of(Part::kText));
  if (dtype_of(Part::kVae) != unet->dtype()) types += concat(", vae ", dtype_of(Part::kVae));
  if (weights) types += concat(", unet weights ", weights.name());
  if (vae_weights) types += concat(", vae weights ", vae_weights.name());
  return types;
}

void Components::need_encoder() {
  if (has_encoder()) return;
  if (vae)
    loaded_encoder =
        VaeEncoder::load(load_target(Part::kVae), vae->config(),
                         StoreSource(checkpoint->store(Component::kVae)), vae->dtype(), vae_weights);
  else
    loaded_tiny_encoder =
        TaesdEncoder::load(loading_device(Part::kVae), tiny_vae->config(),
                           StoreSource(checkpoint->store(Component::kTinyVae)), tiny_vae->dtype());
}

}  // namespace rocm_sd
