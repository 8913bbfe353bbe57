// What a request's IP-Adapters bring: their models, and what the UNet reads of their images.
#include <algorithm>

#include "base/error.hpp"
#include "models/bytes_to_load.hpp"
#include "pipeline/ip_request.hpp"
#include "pipeline/state.hpp"

namespace rocm_sd {
namespace {

using ImageModels = std::vector<std::shared_ptr<LoadedImageModel>>;

bool holds(const ImageModels& models, const std::shared_ptr<LoadedImageModel>& model) {
  return std::ranges::find(models, model) != models.end();
}

// One that the request has named already, or `find()`'s.
template <class Find>
std::shared_ptr<LoadedImageModel> shared(ImageModels& wanted, const Find& find) {
  std::shared_ptr<LoadedImageModel> model = find();
  for (const auto& known : wanted)
    if (known->path == model->path && (known->adapter() != nullptr) == (model->adapter() != nullptr))
      return known;
  wanted.push_back(model);
  return model;
}

}  // namespace

void Pipeline::State::use_image_models(const ResolvedRequest& r) {
  ImageModels wanted, adapters, encoders;
  std::vector<ImageUnit> units;
  for (size_t i = 0; i < r.ip_adapters.size(); ++i) {
    const ResolvedIpAdapter& use = r.ip_adapters[i];
    adapters.push_back(shared(wanted, [&] { return components.find_adapter(use.model); }));
    const LoadedImageModel& adapter = *adapters.back();
    const IpAdapterUse& asked = r.request.ip_adapters[i];
    const ImageProjectionConfig& reads = adapter.adapter()->config().projection;
    const bool given = asked.embeds.has_value(), seen = images_of(asked) > 0;
    require<UsageError>(given || !reads.faces || reads.has_both(), "ip-image: ", printable(adapter.name),
                        " is a FaceID adapter, which reads a face model's embedding: expected it as "
                        "ip-embeds, got an image");
    require<UsageError>((given && seen && asked.each.empty()) || !reads.has_both(),
                        "ip-image, ip-embeds: ", printable(adapter.name),
                        " is a FaceID Plus adapter: expected the face's picture and a face model's embedding "
                        "of it (--ip-image PICTURE,EMBEDDING.safetensors), got ",
                        !asked.each.empty() ? "pictures for each image of the batch"
                        : given             ? "the embedding alone"
                                            : "the picture alone");
    require<UsageError>(!given || !seen || reads.has_both(), "ip-image, ip-embeds: ", printable(adapter.name),
                        ": expected one of them, got several");
    encoders.push_back(!seen ? nullptr
                             : shared(wanted, [&] { return components.encoder_of(adapter, use.encoder); }));
    units.push_back(image_unit(r, i, adapter, encoders.back().get()));
  }
  ip_adapters_.clear();
  image_encoders_.clear();
  image_units_.clear();
  const auto loaded = [&](const auto& model) { return holds(components.image_models, model); };
  if (!std::ranges::all_of(wanted, loaded)) {
    refused_ = false;  // what a plan said of an earlier request
    with_savings([&] { set_image_models(wanted); });
  }
  ip_adapters_ = std::move(adapters);
  image_encoders_ = std::move(encoders);
  image_units_ = std::move(units);
}

// Those that are not kept give their weights' memory back, whoever else refers to them.
void Pipeline::State::keep_image_models(const ImageModels& kept) {
  const ImageModels before = components.image_models;
  if (std::ranges::all_of(before, [&](const auto& model) { return holds(kept, model); })) return;
  drop(Part::kImage);
  std::erase_if(components.image_models, [&](const auto& model) { return !holds(kept, model); });
  residency.image_models_changed();
  for (const auto& model : before)
    if (!holds(kept, model)) model->drop();
}

void Pipeline::State::set_image_models(const ImageModels& wanted) {
  at_work_ = Part::kImage;
  drop(Part::kImage);
  keep_image_models(wanted);
  for (const auto& model : wanted) {
    if (holds(components.image_models, model)) continue;
    keep_room_for(Part::kImage,
                  bytes_to_load([&](Visitor& v) { model->visit(v); }, components.image_stored, {}, {}));
    components.load_image_model(*model);
    components.image_models.push_back(model);
    residency.image_models_changed();
  }
}

std::vector<ImageSlot> Pipeline::State::image_slots(const ResolvedRequest& r) const {
  std::vector<ImageSlot> out;
  for (size_t i = 0; i < image_units_.size(); ++i)
    out.push_back({image_units_[i].tokens(), static_cast<int64_t>(r.request.ip_adapters[i].masks.size())});
  return out;
}

void Pipeline::State::encode_images(const PreparedRequest& r, const RunWatch& watch) {
  image_states_.clear();
  if (image_units_.empty()) return;
  image_states_ = run_with_retry(Part::kImage, r, [&] { return image->run(r, watch); });
  Device& there = components.place[Part::kImage];
  if (&there == components.device) return;
  const DType reads = components.unet->text_dtype();
  for (std::vector<Tensor>& adapter : image_states_)
    for (Tensor& layer : adapter)
      layer = layer.dtype() == reads
                  ? moved_to(*components.device, there, layer)
                  : tensor_from(*components.device, layer.shape(), to_floats(there, layer).data(), reads);
}

}  // namespace rocm_sd
