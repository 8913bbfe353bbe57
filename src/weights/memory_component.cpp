#include "weights/memory_component.hpp"

#include <nlohmann/json.hpp>

#include "weights/derive_config.hpp"
#include "weights/name_extent.hpp"

namespace rocm_sd {
namespace {

// Heads are the one thing that the shapes of a bare UNet do not say: SD 1 has 8, all others heads 64 wide.
ModelKind kind_of(const WeightStore& store) {
  if (store.component() != Component::kUnet) return ModelKind::kSd1;
  const int64_t width = cross_attention_width(store);
  if (has_any(store, "add_embedding.")) return width == 1280 ? ModelKind::kSdxlRefiner : ModelKind::kSdxl;
  return width == 1024 ? ModelKind::kSd2 : ModelKind::kSd1;
}

}  // namespace

LoadedComponent component_in_memory(const TensorSet& tensors, Component component,
                                    std::optional<nlohmann::json> config) {
  ComponentLoader loader;
  LoadedComponent out = loader.take_wanted(tensors, component);
  if (config) out.config = std::move(config);
  if (out.config) return out;
  DeriveHints hints{.kind = kind_of(out.store)};
  if (hints.kind == ModelKind::kSdxl || hints.kind == ModelKind::kSdxlRefiner) hints.pooled_width = 1280;
  out.config = derive_config(out.store, hints);
  out.config_is_derived = true;
  return out;
}

}  // namespace rocm_sd
