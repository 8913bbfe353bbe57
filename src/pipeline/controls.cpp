#include "pipeline/controls.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "models/store_source.hpp"
#include "weights/controlnet_weights.hpp"
#include "weights/file_hash.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kNamed = 12;                    // tensors that a message names; the rest are counted
constexpr int64_t kLookedAt = int64_t{1} << 20;  // elements of a tensor whose values are looked at beforehand

// Every tensor of the model is there, of the right shape, and no other is.
void require_complete(const WeightStore& store, const ControlNet& model) {
  const std::vector<ParameterSlot::Part> parts = list_parameters(model);
  std::vector<std::string> missing, extra;
  std::set<std::string_view> wanted;
  for (const ParameterSlot::Part& part : parts) {
    wanted.insert(part.name);
    if (!store.has(part.name)) missing.push_back(concat(part.name, " ", part.shape));
  }
  for (const auto& [name, tensor] : store.weights())
    if (!wanted.contains(name)) extra.push_back(tensor.file_name());
  require<FormatError>(missing.empty(), store.title(), ": ", missing.size(), " of ", parts.size(),
                       " expected tensors ", missing.size() == 1 ? "is" : "are",
                       " missing: ", listed_names(missing, kNamed));
  require<FormatError>(extra.empty(), store.title(), ": ", extra.size(),
                       extra.size() == 1 ? " tensor has" : " tensors have",
                       " no place in a ControlNet: ", listed_names(extra, kNamed));
  for (const ParameterSlot::Part& part : parts) store.check(part.name, part.shape);
}

void require_finite(const WeightStore& store) {
  std::vector<float> values;
  for (const auto& [name, tensor] : store.weights()) {
    if (tensor.shape.numel() > kLookedAt) continue;
    values.resize(static_cast<size_t>(tensor.shape.numel()));
    store.read_range(tensor, 0, tensor.shape.numel(), DType::kF32, values.data());
    const auto bad = std::ranges::count_if(values, [](float v) { return !std::isfinite(v); });
    require<FormatError>(bad == 0, store.title(), ": ", printable(tensor.file_name()), ": ", bad, " of ",
                         values.size(), " values are not finite");
  }
}

}  // namespace

void LoadedControl::load(const LoadTarget& target, DType compute, const WeightFormat& weights) {
  model = ControlNet(config);  // the old weights go first: both need not fit
  model = ControlNet::load(target, config, StoreSource(store), compute, weights);
}

std::shared_ptr<LoadedControl> open_control(const std::filesystem::path& path, const Checkpoint& checkpoint,
                                            const UNetConfig& unet, int64_t downscale,
                                            const ControlFiles& files) {
  require<FileError>(path_exists(path), "control: ", printable(path.native()), ": no such file or folder");
  const SteeredUnet steered{checkpoint.config(Component::kUnet), checkpoint.kind()};
  ControlNetWeights opened = open_controlnet(path, steered, files.variant, files.access);
  const ControlNetConfig config = controlnet_config(
      *opened.config, concat(opened.store.title(), opened.config_is_derived ? "" : " (config.json)"));
  const std::string refusal = controlnet_refusal(config, unet, downscale);
  require<FormatError>(refusal.empty(), opened.store.title(), ": made for another base model than this ",
                       model_kind_name(checkpoint.kind()), " one: ", refusal);
  ControlNet model(config);
  require_complete(opened.store, model);
  require_finite(opened.store);
  const bool folder = is_folder_path(path);
  std::error_code error;
  std::string name = (folder ? path.filename() : path.stem()).string();
  if (name.empty()) name = path.parent_path().filename().string();  // "canny/"
  return std::make_shared<LoadedControl>(LoadedControl{
      path, std::filesystem::last_write_time(path, error), std::move(name),
      folder ? std::string() : short_hash_of_file(path), std::move(opened.store), config, std::move(model)});
}

}  // namespace rocm_sd
