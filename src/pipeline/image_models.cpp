#include "pipeline/image_models.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "models/store_source.hpp"
#include "pipeline/model_checks.hpp"
#include "weights/file_hash.hpp"
#include "weights/ip_adapter_weights.hpp"
#include "weights/layout.hpp"

namespace rocm_sd {
namespace {

namespace fs = std::filesystem;

template <class Model>
std::shared_ptr<LoadedImageModel> opened(const fs::path& path, WeightStore store, Model model,
                                         const char* what) {
  require_complete(store, list_parameters(model), what);
  require_finite(store);
  const bool folder = is_folder_path(path);
  std::error_code error;
  std::string name = (folder ? path.filename() : path.stem()).string();
  if (name.empty()) name = path.parent_path().filename().string();  // "image_encoder/"
  return std::make_shared<LoadedImageModel>(LoadedImageModel{
      path, fs::last_write_time(path, error), std::move(name),
      folder ? std::string() : short_hash_of_file(path), std::move(store), std::move(model)});
}

}  // namespace

void LoadedImageModel::load(Device& device, DType compute, DType stored) {
  drop();  // both need not fit
  if (auto* own = std::get_if<IpAdapter>(&model))
    own->load(device, StoreSource(store), compute, stored);
  else
    model = ClipVisionModel::load(device, encoder()->config(), StoreSource(store), compute, stored);
}

void LoadedImageModel::drop() {
  if (adapter())
    model = IpAdapter(IpAdapterConfig(adapter()->config()), std::vector(adapter()->layers()));
  else
    model = ClipVisionModel(ClipVisionConfig(encoder()->config()));
}

void LoadedImageModel::visit(Visitor& v) {
  std::visit([&](auto& held) { held.visit(v); }, model);
}

std::shared_ptr<LoadedImageModel> open_adapter_model(const fs::path& path, ModelKind kind, const UNet& unet,
                                                     const ImageModelFiles& files) {
  WeightStore store = open_ip_adapter(path, files.access);
  IpAdapterConfig config = ip_adapter_config(store);
  config.read_name(path.stem().string());
  const std::string refusal = ip_adapter_refusal(config, unet);
  require<FormatError>(refusal.empty(), store.title(), ": made for another base model than this ",
                       model_kind_name(kind), " one: ", refusal);
  IpAdapter model(config, unet.image_attentions());
  return opened(path, std::move(store), std::move(model), "an IP-Adapter of its kind");
}

std::shared_ptr<LoadedImageModel> open_encoder_model(const fs::path& path, const ImageModelFiles& files) {
  ImageEncoderWeights weights = open_image_encoder(path, files.variant, files.access);
  ClipVisionModel model(clip_vision_config(*weights.config, weights.store.title()));
  return opened(path, std::move(weights.store), std::move(model), "a CLIP image encoder");
}

std::string encoder_refusal(const IpAdapter& adapter, const ClipVisionModel& encoder) {
  const ImageProjectionConfig& reads = adapter.config().projection;
  const ClipVisionConfig& has = encoder.config();
  const bool states = reads.reads_states();
  const int64_t width = states ? has.width : has.projection;
  if (width == reads.in_width) return {};
  return concat("its ", states ? "states are " : "embedding is ", width, " wide, the adapter reads ",
                reads.in_width);
}

std::vector<fs::path> encoder_places(const fs::path& adapter, const Checkpoint& checkpoint) {
  constexpr const char* kFolder = "image_encoder";
  const fs::path folder = adapter.parent_path();
  std::vector<fs::path> out = {folder / kFolder, folder / ".." / "models" / kFolder};
  if (checkpoint.is_folder()) out.push_back(checkpoint.path() / kFolder);
  return out;
}

}  // namespace rocm_sd
