#include "pipeline/controls.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "models/control_lora_source.hpp"
#include "models/store_source.hpp"
#include "pipeline/model_checks.hpp"
#include "weights/controlnet_weights.hpp"
#include "weights/diffusers_folder.hpp"
#include "weights/file_hash.hpp"
#include "weights/layout.hpp"
#include "weights/t2i_weights.hpp"

namespace rocm_sd {
namespace {

namespace fs = std::filesystem;

struct Opened {
  WeightStore store;
  const WeightStore* unet = nullptr;
  std::variant<ControlNet, T2iAdapter> model;
};

// What a file for another base model is refused with.
void require_fit(const std::string& refusal, const WeightStore& store, const Checkpoint& checkpoint) {
  require<FormatError>(refusal.empty(), store.title(), ": made for another base model than this ",
                       model_kind_name(checkpoint.kind()), " one: ", refusal);
}

Opened open_net(const fs::path& path, const Checkpoint& checkpoint, const UNetConfig& unet, int64_t downscale,
                const ControlFiles& files) {
  const SteeredUnet steered{checkpoint.config(Component::kUnet), checkpoint.kind()};
  ControlNetWeights opened = open_controlnet(path, steered, files.variant, files.access);
  const ControlNetConfig config = controlnet_config(
      *opened.config, concat(opened.store.title(), opened.config_is_derived ? "" : " (config.json)"));
  require_fit(controlnet_refusal(config, unet, downscale), opened.store, checkpoint);
  ControlNet model(config);
  const WeightStore* base = opened.low_rank ? &checkpoint.store(Component::kUnet) : nullptr;
  if (base)
    ControlLoraSource(opened.store, *base).check(list_parameters(model));
  else
    require_complete(opened.store, list_parameters(model), "a ControlNet");
  return {std::move(opened.store), base, std::move(model)};
}

std::shared_ptr<const nlohmann::json> adapter_config(const fs::path& folder) {
  if (!path_exists(folder / "config.json")) return nullptr;
  auto config = std::make_shared<nlohmann::json>(parse_json_file(folder / "config.json"));
  const bool ours = config->is_object() && config->value("_class_name", nlohmann::json()) == "T2IAdapter";
  return ours ? config : nullptr;
}

// Nothing where the path holds no T2I-Adapter.
std::optional<Opened> open_adapter(const fs::path& path, const Checkpoint& checkpoint, const UNetConfig& unet,
                                   int64_t downscale, const ControlFiles& files) {
  const bool folder = is_folder_path(path);
  auto config = adapter_config(folder ? path : path.parent_path());
  if (folder && !config) return std::nullopt;
  std::vector<std::string> notes;
  const TensorSet tensors = TensorSet::open(
      folder ? component_weights(path, Component::kUnet, files.variant, notes) : path, files.access);
  if (!holds_t2i_adapter(tensors)) return std::nullopt;
  T2iWeights opened = t2i_of(tensors, std::move(config));
  const T2iConfig adapter = t2i_config(*opened.config, opened.store.title());
  require_fit(t2i_refusal(adapter, unet, downscale), opened.store, checkpoint);
  T2iAdapter model(adapter);
  require_complete(opened.store, list_parameters(model), "a T2I-Adapter");
  return Opened{std::move(opened.store), nullptr, std::move(model)};
}

}  // namespace

void LoadedControl::load(const LoadTarget& target, DType compute, const WeightFormat& weights,
                         DType unet_maps) {
  drop();  // both need not fit
  maps = unet_maps;
  if (const T2iAdapter* old = adapter()) {
    model = T2iAdapter::load(target, old->config(), StoreSource(store), compute);
    return;
  }
  const ControlNetConfig config = net()->config();
  if (unet)
    model = ControlNet::load(target, config, ControlLoraSource(store, *unet), compute, weights);
  else
    model = ControlNet::load(target, config, StoreSource(store), compute, weights);
}

void LoadedControl::drop() {
  if (net())
    model = ControlNet(ControlNetConfig(net()->config()));
  else
    model = T2iAdapter(T2iConfig(adapter()->config()));
}

void LoadedControl::visit(Visitor& v) {
  std::visit([&](auto& held) { held.visit(v); }, model);
}

std::shared_ptr<LoadedControl> open_control(const fs::path& path, const Checkpoint& checkpoint,
                                            const UNetConfig& unet, int64_t downscale,
                                            const ControlFiles& files) {
  require<FileError>(path_exists(path), "control: ", printable(path.native()), ": no such file or folder");
  std::optional<Opened> opened = open_adapter(path, checkpoint, unet, downscale, files);
  if (!opened) opened = open_net(path, checkpoint, unet, downscale, files);
  require_finite(opened->store);
  const bool folder = is_folder_path(path);
  std::error_code error;
  std::string name = (folder ? path.filename() : path.stem()).string();
  if (name.empty()) name = path.parent_path().filename().string();  // "canny/"
  return std::make_shared<LoadedControl>(
      LoadedControl{path, fs::last_write_time(path, error), std::move(name),
                    folder ? std::string() : short_hash_of_file(path), std::move(opened->store), opened->unet,
                    std::move(opened->model)});
}

}  // namespace rocm_sd
