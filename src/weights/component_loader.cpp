#include "weights/component_loader.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "weights/diffusers_folder.hpp"

namespace rocm_sd {
namespace {

namespace fs = std::filesystem;

bool is_text(Component component) {
  return component == Component::kTextEncoder || component == Component::kTextEncoder2;
}

// The class that a config.json names; empty where it names none.
std::string class_of(const nlohmann::json& config) {
  if (const auto it = config.find("_class_name"); it != config.end() && it->is_string()) return *it;
  if (const auto it = config.find("architectures"); it != config.end() && it->is_array() && !it->empty())
    if (it->front().is_string()) return it->front();
  return {};
}

bool class_fits(const std::string& name, Component component) {
  switch (component) {
    case Component::kUnet: return name == "UNet2DConditionModel";
    case Component::kVae: return name == "AutoencoderKL";
    case Component::kTinyVae: return name == "AutoencoderTiny";
    default: return name == "CLIPTextModel" || name == "CLIPTextModelWithProjection" || name == "CLIPModel";
  }
}

// config.json beside a component's weights, if it is that component's.
std::optional<nlohmann::json> config_beside(const fs::path& folder, Component component) {
  if (!path_exists(folder / "config.json")) return std::nullopt;
  nlohmann::json config = parse_json_file(folder / "config.json");
  require<FormatError>(config.is_object(), printable_path(folder / "config.json"),
                       ": expected a JSON object");
  const std::string name = class_of(config);
  if (!name.empty() && !class_fits(name, component)) return std::nullopt;
  return config;
}

void require_no_gaps(std::span<const std::string> gaps, const LayoutPart& part, const std::string& what) {
  std::string names;
  for (const std::string& gap : gaps.first(std::min<size_t>(gaps.size(), 8)))
    names += concat(names.empty() ? "" : ", ", part.prefix, printable(gap));
  require<FormatError>(gaps.empty(), component_name(part.component), " of ", what, ": no tensor of ", names,
                       gaps.size() > 8 ? ", ..." : "", ", though blocks of higher numbers are there");
}

std::string parts_text(std::span<const LayoutPart> parts) {
  std::string out;
  for (const LayoutPart& part : parts) out += concat(out.empty() ? "" : ", ", component_name(part.component));
  return out;
}

}  // namespace

std::string config_metadata_key(Component component) {
  return concat("rocm_sd.config.", component_name(component));
}

LoadedComponent ComponentLoader::take(const TensorSet& tensors, Component component,
                                      std::span<const LayoutPart> parts) {
  WeightMap weights;
  NameStyle style = NameStyle::kDiffusers;
  std::string prefix;
  std::vector<std::string> unknown;
  for (const LayoutPart& part : parts) {
    if (part.component != component) continue;
    style = part.style;
    prefix = part.prefix;
    const std::vector<NamedTensor> named = tensors_of(tensors, part, parts);
    MappedNames mapped = map_names(component, part.style, named);
    require_no_gaps(mapped.gaps, part, printable_path(tensors.path()));
    weights.merge(mapped.weights);
    keys.unexpected.insert(keys.unexpected.end(), mapped.unexpected.begin(), mapped.unexpected.end());
    unknown.insert(unknown.end(), mapped.unexpected.begin(), mapped.unexpected.end());
    keys.harmless.insert(keys.harmless.end(), mapped.harmless.begin(), mapped.harmless.end());
  }
  const std::string title = concat(component_name(component), " of ", printable_path(tensors.path()));
  LoadedComponent out{WeightStore(component, title, tensors.files(), std::move(weights)),
                      style,
                      {},
                      false,
                      std::move(prefix),
                      std::move(unknown)};
  const auto text = tensors.metadata().find(config_metadata_key(component));
  if (text != tensors.metadata().end())
    out.config =
        parse_json(text->second, {}, concat(printable_path(tensors.path()), ": metadata ", text->first));
  return out;
}

LoadedComponent ComponentLoader::take_wanted(const TensorSet& tensors, Component component) {
  std::vector<LayoutPart> parts = find_parts(tensors, &notes);
  const auto has = [&](Component c) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const LayoutPart& part) { return part.component == c; });
  };
  if (component == Component::kVae && !has(component) && has(Component::kTinyVae))
    component = Component::kTinyVae;
  // A bare text encoder's own width cannot tell for every model which slot it is for: the caller's word
  // counts.
  if (is_text(component) && !has(component))
    for (LayoutPart& part : parts)
      if (is_text(part.component)) part.component = component;
  const std::string foreign = describe_foreign(tensors);
  require<FormatError>(has(component), printable_path(tensors.path()), ": expected a ",
                       component_name(component), ", found ",
                       !parts.empty()    ? parts_text(parts)
                       : foreign.empty() ? "no known component"
                                         : foreign);
  return take(tensors, component, parts);
}

LoadedComponent ComponentLoader::open_folder(const fs::path& folder, Component component, ConfigJson wanted) {
  const auto in_memory = live.find(component);
  const TensorSet tensors =
      in_memory != live.end() ? TensorSet::of(in_memory->second)
                              : TensorSet::open(component_weights(folder, component, variant, notes), access);
  LoadedComponent out = take_wanted(tensors, component);
  if (auto config = config_beside(folder, out.store.component())) out.config = std::move(config);
  require<FormatError>(
      out.config || wanted == ConfigJson::kOptional, printable_path(folder / "config.json"), ": ",
      path_exists(folder / "config.json") ? concat("describes no ", component_name(out.store.component()))
                                          : "is missing",
      "; it says what the tensors alone do not, such as the number of attention heads or the "
      "latents' scale");
  sort_leftovers(tensors, find_parts(tensors), keys);
  return out;
}

LoadedComponent ComponentLoader::open_any(const fs::path& path, Component component) {
  if (is_folder_path(path)) {
    if (path_exists(path / "model_index.json"))
      return open_folder(path / component_name(component), component);
    return open_folder(path, component, ConfigJson::kOptional);
  }
  LoadedComponent out = take_wanted(TensorSet::open(path, access), component);
  if (!out.config && out.style != NameStyle::kLdm && out.style != NameStyle::kOpenClip)
    out.config = config_beside(path.parent_path(), out.store.component());
  return out;
}

}  // namespace rocm_sd
